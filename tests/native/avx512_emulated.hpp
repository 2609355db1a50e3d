// AVX-512 for machines without it: the intrinsics that simd_avx512.hpp uses, spelled out lane by
// lane as Intel's intrinsics guide defines them. Included before the kernels (-include), so that
// the very code of x86-64-v4 runs, slowly, on x86-64-v3 and can be compared with ggml.
#pragma once
#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define __AVX512F__ 1

namespace {
namespace emulated {

template <class To, class From>
inline To as(const From &value) {
    static_assert(sizeof(To) == sizeof(From), "a cast keeps every bit");
    To to;
    memcpy(&to, &value, sizeof to);
    return to;
}

// Sixteen lanes of 32 bits; an AVX-512 register as arrays.
union Lanes {
    float f[16];
    int32_t i[16];
};
inline Lanes lanes_of(__m512 value) { return as<Lanes>(value); }
inline Lanes lanes_of(__m512i value) { return as<Lanes>(value); }

template <class Lane>
inline __m512 floats(Lane lane) {
    Lanes out;
    for (int k = 0; k < 16; ++k) out.f[k] = lane(k);
    return as<__m512>(out);
}
template <class Lane>
inline __m512i ints(Lane lane) {
    Lanes out;
    for (int k = 0; k < 16; ++k) out.i[k] = lane(k);
    return as<__m512i>(out);
}
template <class Lane>
inline __mmask16 mask(Lane lane) {
    unsigned bits = 0;
    for (int k = 0; k < 16; ++k) bits |= static_cast<unsigned>(lane(k) ? 1 : 0) << k;
    return static_cast<__mmask16>(bits);
}

inline bool compare(float a, float b, int predicate) {
    switch (predicate) {
    case _CMP_LT_OQ: return a < b;
    case _CMP_LE_OQ: return a <= b;
    case _CMP_EQ_OQ: return a == b;
    case _CMP_GT_OQ: return a > b;
    case _CMP_GE_OQ: return a >= b;
    case _CMP_UNORD_Q: return a != a || b != b;
    case _CMP_NLT_UQ: return !(a < b);
    case _CMP_NLE_UQ: return !(a <= b);
    case _CMP_NEQ_UQ: return !(a == b);
    default: __builtin_trap();  // a predicate that the kernels began to use: define it here
    }
}

inline __mmask16 cmp_ps_mask(__m512 a, __m512 b, int predicate) {
    const Lanes x = lanes_of(a), y = lanes_of(b);
    return mask([&](int k) { return compare(x.f[k], y.f[k], predicate); });
}
inline __mmask16 cmpgt_epi32_mask(__m512i a, __m512i b) {
    const Lanes x = lanes_of(a), y = lanes_of(b);
    return mask([&](int k) { return x.i[k] > y.i[k]; });
}
inline __mmask16 cmpeq_epi32_mask(__m512i a, __m512i b) {
    const Lanes x = lanes_of(a), y = lanes_of(b);
    return mask([&](int k) { return x.i[k] == y.i[k]; });
}

// Bit k set takes lane k of the second operand.
inline __m512i mask_blend_epi32(__mmask16 choose, __m512i a, __m512i b) {
    const Lanes x = lanes_of(a), y = lanes_of(b);
    return ints([&](int k) { return choose >> k & 1 ? y.i[k] : x.i[k]; });
}
inline __m512 mask_blend_ps(__mmask16 choose, __m512 a, __m512 b) {
    return as<__m512>(mask_blend_epi32(choose, as<__m512i>(a), as<__m512i>(b)));
}

// The second operand is the result when either is NaN, or both are zeros.
inline __m512 max_ps(__m512 a, __m512 b) {
    const Lanes x = lanes_of(a), y = lanes_of(b);
    return floats([&](int k) { return x.f[k] > y.f[k] ? x.f[k] : y.f[k]; });
}
inline __m512 min_ps(__m512 a, __m512 b) {
    const Lanes x = lanes_of(a), y = lanes_of(b);
    return floats([&](int k) { return x.f[k] < y.f[k] ? x.f[k] : y.f[k]; });
}
inline __m512i max_epi32(__m512i a, __m512i b) {
    const Lanes x = lanes_of(a), y = lanes_of(b);
    return ints([&](int k) { return x.i[k] > y.i[k] ? x.i[k] : y.i[k]; });
}
inline __m512i min_epi32(__m512i a, __m512i b) {
    const Lanes x = lanes_of(a), y = lanes_of(b);
    return ints([&](int k) { return x.i[k] < y.i[k] ? x.i[k] : y.i[k]; });
}

// Out of range gives INT32_MIN, as the scalar instruction does.
inline __m512i cvttps_epi32(__m512 a) {
    const Lanes x = lanes_of(a);
    return ints([&](int k) { return _mm_cvttss_si32(_mm_set_ss(x.f[k])); });
}
inline __m512i cvtps_epi32(__m512 a) {
    const Lanes x = lanes_of(a);
    return ints([&](int k) { return _mm_cvtss_si32(_mm_set_ss(x.f[k])); });
}
inline __m512 fmsub_ps(__m512 a, __m512 b, __m512 c) {
    const Lanes x = lanes_of(a), y = lanes_of(b), z = lanes_of(c);
    return floats([&](int k) { return fmaf(x.f[k], y.f[k], -z.f[k]); });
}
inline __m512 sqrt_ps(__m512 a) {
    const Lanes x = lanes_of(a);
    return floats([&](int k) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x.f[k]))); });
}
inline __m512 roundscale_ps(__m512 a, int how) {
    const int direction = how & ~_MM_FROUND_NO_EXC;
    if (direction != _MM_FROUND_TO_NEAREST_INT && direction != _MM_FROUND_TO_NEG_INF)
        __builtin_trap();
    const Lanes x = lanes_of(a);
    return floats([&](int k) {
        const __m128 one = _mm_set_ss(x.f[k]);
        const __m128 down = _mm_round_ss(one, one, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
        const __m128 near = _mm_round_ss(one, one, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        return _mm_cvtss_f32(direction == _MM_FROUND_TO_NEG_INF ? down : near);
    });
}

inline __m256i cvtepi32_epi16(__m512i a) {
    const Lanes x = lanes_of(a);
    uint16_t out[16];
    for (int k = 0; k < 16; ++k) out[k] = static_cast<uint16_t>(x.i[k]);
    return as<__m256i>(out);
}
inline __m512i cvtepu16_epi32(__m256i a) {
    uint16_t x[16];
    memcpy(x, &a, sizeof x);
    return ints([&](int k) { return x[k]; });
}
inline __m512i cvtepi8_epi32(__m128i a) {
    int8_t x[16];
    memcpy(x, &a, sizeof x);
    return ints([&](int k) { return x[k]; });
}
inline __m512 cvtph_ps(__m256i halves) {
    uint16_t x[16];
    memcpy(x, &halves, sizeof x);
    return floats([&](int k) { return _cvtsh_ss(x[k]); });
}
inline __m256i cvtps_ph(__m512 a, int) {
    const Lanes x = lanes_of(a);
    uint16_t out[16];
    for (int k = 0; k < 16; ++k) out[k] = _cvtss_sh(x.f[k], _MM_FROUND_TO_NEAREST_INT);
    return as<__m256i>(out);
}

// A quarter of four lanes at a time, as the narrower instruction does it.
template <class Quarter>
inline __m512i quarters(Quarter quarter) {
    __m128i out[4];
    for (int k = 0; k < 4; ++k) out[k] = quarter(k);
    return as<__m512i>(out);
}
struct Quarters {
    __m128i of[4];
};
inline __m512i packs_epi32(__m512i a, __m512i b) {
    const auto x = as<Quarters>(a), y = as<Quarters>(b);
    return quarters([&](int k) { return _mm_packs_epi32(x.of[k], y.of[k]); });
}
inline __m512i packus_epi16(__m512i a, __m512i b) {
    const auto x = as<Quarters>(a), y = as<Quarters>(b);
    return quarters([&](int k) { return _mm_packus_epi16(x.of[k], y.of[k]); });
}
inline __m512i packs_epi16(__m512i a, __m512i b) {
    const auto x = as<Quarters>(a), y = as<Quarters>(b);
    return quarters([&](int k) { return _mm_packs_epi16(x.of[k], y.of[k]); });
}
inline __m512i min_epi8(__m512i a, __m512i b) {
    const auto x = as<Quarters>(a), y = as<Quarters>(b);
    return quarters([&](int k) { return _mm_min_epi8(x.of[k], y.of[k]); });
}
inline __m512i set1_epi8(int8_t a) {
    return quarters([&](int) { return _mm_set1_epi8(a); });
}
inline __m512i shuffle_epi8(__m512i a, __m512i picks) {
    const auto x = as<Quarters>(a), y = as<Quarters>(picks);
    return quarters([&](int k) { return _mm_shuffle_epi8(x.of[k], y.of[k]); });
}
inline __m512i broadcast_i32x4(__m128i a) {
    return quarters([&](int) { return a; });
}

// Within each quarter of four lanes.
inline __m512 unpacklo_ps(__m512 a, __m512 b) {
    const Lanes x = lanes_of(a), y = lanes_of(b);
    return floats([&](int k) { return (k % 2 ? y : x).f[k / 4 * 4 + k % 4 / 2]; });
}
inline __m512 unpackhi_ps(__m512 a, __m512 b) {
    const Lanes x = lanes_of(a), y = lanes_of(b);
    return floats([&](int k) { return (k % 2 ? y : x).f[k / 4 * 4 + 2 + k % 4 / 2]; });
}
inline __m512 shuffle_ps(__m512 a, __m512 b, int picks) {
    const Lanes x = lanes_of(a), y = lanes_of(b);
    return floats(
        [&](int k) { return (k % 4 < 2 ? x : y).f[k / 4 * 4 + (picks >> 2 * (k % 4) & 3)]; });
}
// Whole quarters: two of the first operand, two of the second.
inline __m512 shuffle_f32x4(__m512 a, __m512 b, int picks) {
    const Lanes x = lanes_of(a), y = lanes_of(b);
    return floats([&](int k) { return (k < 8 ? x : y).f[4 * (picks >> 2 * (k / 4) & 3) + k % 4]; });
}

inline __m512 permutexvar_ps(__m512i index, __m512 value) {
    const Lanes from = lanes_of(value), at = lanes_of(index);
    return floats([&](int k) { return from.f[at.i[k] & 15]; });
}

// The chosen lanes in order; zeros fill up.
inline __m512i maskz_compress_epi32(__mmask16 choose, __m512i a) {
    const Lanes x = lanes_of(a);
    Lanes out = {};
    for (int k = 0, count = 0; k < 16; ++k) {
        if (choose >> k & 1) out.i[count++] = x.i[k];
    }
    return as<__m512i>(out);
}

inline void stream_ps(float *to, __m512 value) { memcpy(to, &value, sizeof value); }

}  // namespace emulated
}  // namespace

#define _mm512_broadcast_i32x4 emulated::broadcast_i32x4
#define _mm512_cmp_ps_mask emulated::cmp_ps_mask
#define _mm512_cmpeq_epi32_mask emulated::cmpeq_epi32_mask
#define _mm512_cmpgt_epi32_mask emulated::cmpgt_epi32_mask
#define _mm512_cvtepi32_epi16 emulated::cvtepi32_epi16
#define _mm512_cvtepi8_epi32 emulated::cvtepi8_epi32
#define _mm512_cvtepu16_epi32 emulated::cvtepu16_epi32
#define _mm512_cvtph_ps emulated::cvtph_ps
#define _mm512_cvtps_epi32 emulated::cvtps_epi32
#define _mm512_cvtps_ph emulated::cvtps_ph
#define _mm512_cvttps_epi32 emulated::cvttps_epi32
#define _mm512_mask_blend_epi32 emulated::mask_blend_epi32
#define _mm512_mask_blend_ps emulated::mask_blend_ps
#define _mm512_maskz_compress_epi32 emulated::maskz_compress_epi32
#define _mm512_max_epi32 emulated::max_epi32
#define _mm512_max_ps emulated::max_ps
#define _mm512_min_epi32 emulated::min_epi32
#define _mm512_fmsub_ps emulated::fmsub_ps
#define _mm512_min_ps emulated::min_ps
#define _mm512_packs_epi32 emulated::packs_epi32
#define _mm512_packs_epi16 emulated::packs_epi16
#define _mm512_packus_epi16 emulated::packus_epi16
#define _mm512_min_epi8 emulated::min_epi8
#define _mm512_set1_epi8 emulated::set1_epi8
#define _mm512_permutexvar_ps emulated::permutexvar_ps
#define _mm512_roundscale_ps emulated::roundscale_ps
#define _mm512_shuffle_epi8 emulated::shuffle_epi8
#define _mm512_shuffle_f32x4 emulated::shuffle_f32x4
#define _mm512_shuffle_ps emulated::shuffle_ps
#define _mm512_sqrt_ps emulated::sqrt_ps
#define _mm512_stream_ps emulated::stream_ps
#define _mm512_unpackhi_ps emulated::unpackhi_ps
#define _mm512_unpacklo_ps emulated::unpacklo_ps
