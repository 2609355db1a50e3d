#include "dispatch.hpp"

#include <stdexcept>

#include "x86_level.hpp"

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

std::vector<const Table *> find_tables() {
    std::vector<const Table *> usable;
#if defined(GGUFKIT_HAS_v4)
    if (x86_level() >= 4) usable.push_back(&ggufkit_quants_table_v4);
#endif
#if defined(GGUFKIT_HAS_v3)
    if (x86_level() >= 3) usable.push_back(&ggufkit_quants_table_v3);
#endif
#if defined(GGUFKIT_HAS_v2)
    if (x86_level() >= 2) usable.push_back(&ggufkit_quants_table_v2);
#endif
#if defined(GGUFKIT_HAS_neon)
    usable.push_back(&ggufkit_quants_table_neon);
#endif
#if defined(GGUFKIT_HAS_wide) && defined(__x86_64__)
    if (x86_level() >= 3) usable.push_back(&ggufkit_quants_table_wide);
#elif defined(GGUFKIT_HAS_wide)
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
