#include "dispatch.hpp"

#include <stdexcept>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__unix__)
#include <unistd.h>
#endif

extern "C" {
extern const Table ggufkit_quants_table_portable;
extern const Table ggufkit_quants_table_v2;
extern const Table ggufkit_quants_table_v3;
extern const Table ggufkit_quants_table_v4;
extern const Table ggufkit_quants_table_neon;
extern const Table ggufkit_quants_table_wide;
}

namespace {

constexpr int64_t usual_cache_bytes = int64_t{32} << 20;

#if defined(__x86_64__)
struct Registers {
    uint32_t a = 0, b = 0, c = 0, d = 0;
};

Registers cpuid(uint32_t leaf) {
    Registers r;
    __get_cpuid_count(leaf, 0, &r.a, &r.b, &r.c, &r.d);
    return r;
}

// The register files that the system saves: without that, a CPU's AVX is unusable.
uint32_t saved_state(const Registers &basic) {
    if (!(basic.c & bit_OSXSAVE)) return 0;
    uint32_t low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

constexpr bool has(uint32_t bits, uint32_t requested) { return (bits & requested) == requested; }

// The level of x86-64's psABI, from 1 to 4.
int x86_level() {
    constexpr uint32_t v2 = bit_SSE3 | bit_SSSE3 | bit_SSE4_1 | bit_SSE4_2 | bit_POPCNT;
    constexpr uint32_t v3 = bit_AVX | bit_F16C | bit_FMA | bit_MOVBE;
    constexpr uint32_t v3_more = bit_AVX2 | bit_BMI | bit_BMI2;
    constexpr uint32_t v4 = bit_AVX512F | bit_AVX512BW | bit_AVX512CD | bit_AVX512DQ | bit_AVX512VL;
    constexpr uint32_t ymm_state = 0x06, zmm_state = 0xE6;
    const Registers basic = cpuid(1), more = cpuid(7), extended = cpuid(0x80000001);
    const uint32_t state = saved_state(basic);
    if (!has(basic.c, v2)) return 1;
    if (!has(basic.c, v3) || !has(more.b, v3_more) || !has(extended.c, bit_LZCNT)) return 2;
    if (!has(state, ymm_state)) return 2;
    return has(more.b, v4) && has(state, zmm_state) ? 4 : 3;
}
#endif

std::vector<const Table *> find_tables() {
    std::vector<const Table *> usable;
#if defined(__x86_64__)
    const int level = x86_level();
    if (level >= 4) usable.push_back(&ggufkit_quants_table_v4);
    if (level >= 3) usable.push_back(&ggufkit_quants_table_v3);
    if (level >= 2) usable.push_back(&ggufkit_quants_table_v2);
#elif defined(__aarch64__)
    usable.push_back(&ggufkit_quants_table_neon);
#endif
#if defined(GGUFKIT_WIDE) && defined(__x86_64__)
    if (level >= 3) usable.push_back(&ggufkit_quants_table_wide);
#elif defined(GGUFKIT_WIDE)
    usable.push_back(&ggufkit_quants_table_wide);
#endif
    usable.push_back(&ggufkit_quants_table_portable);
    return usable;
}

}  // namespace

const std::vector<const Table *> &runnable_tables() {
    static const std::vector<const Table *> tables = find_tables();
    return tables;
}

const Table &table_named(const std::string &isa) {
    std::string names;
    for (const Table *table : runnable_tables()) {
        if (isa == table->isa) return *table;
        names += std::string(names.empty() ? "" : ", ") + table->isa;
    }
    throw std::invalid_argument("instruction set '" + isa + "' is none of " + names);
}

const Codec *find_codec(const Table &table, uint32_t id) {
    for (uint32_t i = 0; i < table.count; ++i) {
        if (table.codecs[i].id == id) return &table.codecs[i];
    }
    return nullptr;
}

const Refiner *find_refiner(const Table &table, uint32_t id) {
    for (uint32_t i = 0; i < table.refiners->count; ++i) {
        if (table.refiners->of[i].id == id) return &table.refiners->of[i];
    }
    return nullptr;
}

int64_t last_level_cache_bytes() {
#if defined(_SC_LEVEL3_CACHE_SIZE)
    const int64_t bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (bytes > 0) return bytes;
#endif
    return usual_cache_bytes;
}
