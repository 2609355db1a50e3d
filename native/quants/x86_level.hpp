// The level of x86-64 that this processor has.
#pragma once
#if defined(__x86_64__)
#include <cpuid.h>

#include <cstdint>

namespace {

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

}  // namespace
#endif
