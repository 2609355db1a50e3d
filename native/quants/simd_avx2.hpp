// The primitives in AVX2 and F16C (x86-64-v3), eight lanes.
#pragma once
#include <immintrin.h>

namespace {

typedef Ints Mask;  // all bits of a lane set, or none

KERNEL_INLINE Mask less(Floats a, Floats b) { return a < b; }
KERNEL_INLINE Mask equal(Floats a, Floats b) { return a == b; }
KERNEL_INLINE Mask is_nan(Floats a) { return a != a; }
KERNEL_INLINE Mask above(Ints a, Ints b) { return a > b; }
KERNEL_INLINE Floats select(Mask mask, Floats a, Floats b) {
    return (Floats)_mm256_blendv_ps((__m256)b, (__m256)a, (__m256)mask);
}
KERNEL_INLINE Ints select(Mask mask, Ints a, Ints b) {
    return bits_of(select(mask, float_of(a), float_of(b)));
}

KERNEL_INLINE Ints increment(Ints value, Mask where) { return value - where; }

KERNEL_INLINE Floats maximum(Floats a, Floats b) { return (Floats)_mm256_max_ps(a, b); }
KERNEL_INLINE Floats minimum(Floats a, Floats b) { return (Floats)_mm256_min_ps(a, b); }
KERNEL_INLINE Ints minimum(Ints a, Ints b) {
    return (Ints)_mm256_min_epi32((__m256i)a, (__m256i)b);
}
KERNEL_INLINE Ints maximum(Ints a, Ints b) {
    return (Ints)_mm256_max_epi32((__m256i)a, (__m256i)b);
}

KERNEL_INLINE uint32_t lanes_in(Mask mask) {
    return static_cast<uint32_t>(_mm256_movemask_ps((__m256)mask));
}

// Rounded in the machine's fastest way: not for results that must equal ggml's.
KERNEL_INLINE Floats multiply_less(Floats a, Floats b, Floats c) {
    return (Floats)_mm256_fmsub_ps((__m256)a, (__m256)b, (__m256)c);
}

KERNEL_INLINE Floats square_root(Floats value) { return (Floats)_mm256_sqrt_ps(value); }
KERNEL_INLINE Floats nearest(Floats value) {
    return (Floats)_mm256_round_ps(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

KERNEL_INLINE Ints truncate(Floats value) { return (Ints)_mm256_cvttps_epi32(value); }

KERNEL_INLINE __m128i narrow_to_16(Ints value) {
    const __m256i low = (__m256i)(value & 0xFFFF);
    return _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
}

KERNEL_INLINE Floats float_of_half(Ints half) {
    return (Floats)_mm256_cvtph_ps(narrow_to_16(half));
}

KERNEL_INLINE Ints half_of_float(Floats value) {
    const Floats quiet = float_of(sign_of(value) | 0x7FC00000);  // the hardware keeps payloads
    const Floats plain = select(is_nan(value), quiet, value);
    return (Ints)_mm256_cvtepu16_epi32(_mm256_cvtps_ph(plain, _MM_FROUND_TO_NEAREST_INT));
}

KERNEL_INLINE float scalar_of_half(uint16_t half) { return _cvtsh_ss(half); }

KERNEL_INLINE Ints load_halves(const uint8_t *from) {
    return (Ints)_mm256_cvtepu16_epi32(read<__m128i>(from));
}

KERNEL_INLINE void store_halves(uint8_t *to, Ints value) { write(to, narrow_to_16(value)); }

KERNEL_INLINE Ints widen(Bytes levels, int part) {
    const __m128i all = (__m128i)levels;
    return (Ints)_mm256_cvtepi8_epi32(part ? _mm_unpackhi_epi64(all, all) : all);
}

KERNEL_INLINE Octets lookup(Octets table, Octets index) {
    return (Octets)_mm_shuffle_epi8((__m128i)table, (__m128i)index);
}

KERNEL_INLINE Floats floor(Floats value) { return (Floats)_mm256_floor_ps(value); }

// Numbers out of range are clamped.
KERNEL_INLINE Shorts narrow(Ints a, Ints b) {
    return (Shorts)_mm256_packs_epi32((__m256i)a, (__m256i)b);
}
KERNEL_INLINE LaneOctets narrow_again(Shorts a, Shorts b) {
    return (LaneOctets)_mm256_packus_epi16((__m256i)a, (__m256i)b);
}

KERNEL_INLINE LaneBytes narrow_signed(Shorts a, Shorts b) {
    return (LaneBytes)_mm256_packs_epi16((__m256i)a, (__m256i)b);
}
KERNEL_INLINE LaneBytes minimum(LaneBytes a, int8_t b) {
    return (LaneBytes)_mm256_min_epi8((__m256i)a, _mm256_set1_epi8(b));
}

KERNEL_INLINE LaneOctets lookup_16(Octets table, LaneOctets index) {
    const __m256i wide = _mm256_broadcastsi128_si256((__m128i)table);
    return (LaneOctets)_mm256_shuffle_epi8(wide, (__m256i)index);
}

// A shuffle gives zero if the highest bit of an index is set, else it uses the low four bits.
KERNEL_INLINE LaneOctets lookup_32(const uint8_t *table, LaneOctets index) {
    const LaneOctets low = lookup_16(load_octets(table), index + 0x70);
    return low | lookup_16(load_octets(table + 16), index - 16);
}

// The n-th of each lane's four numbers, sign-extended.
KERNEL_INLINE Ints nth_of_lane(LaneOctets octets, int n) {
    const int8_t at = static_cast<int8_t>(4 * n);
    const Bytes top = {-1, -1, -1, at, -1, -1, -1, int8_t(at + 1),
                       -1, -1, -1, int8_t(at + 2), -1, -1, -1, int8_t(at + 3)};
    const __m256i wide = _mm256_broadcastsi128_si256((__m128i)top);
    return (Ints)_mm256_shuffle_epi8((__m256i)octets, wide) >> 24;
}

// Four numbers per lane, in order.
KERNEL_INLINE Ints words_of(LaneOctets octets) {
    const Bytes order = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
    const __m256i wide = _mm256_broadcastsi128_si256((__m128i)order);
    return (Ints)_mm256_shuffle_epi8((__m256i)octets, wide);
}

// Entries of a table by index; only the low bits of an index count, log2(lanes) of them.
KERNEL_INLINE Floats pick(Floats table, Ints index) {
    return (Floats)_mm256_permutevar8x32_ps((__m256)table, (__m256i)index);
}

// The same if each four lanes have their own four entries: several times faster.
KERNEL_INLINE Floats pick_of_four(Floats table, Ints index) {
    return (Floats)_mm256_permutevar_ps((__m256)table, (__m256i)index);
}

KERNEL_INLINE void transpose(Floats (&rows)[lanes]) {
    __m256 pairs[8], quads[8];
    UNROLL
    for (int i = 0; i < 8; i += 2) {
        pairs[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
        pairs[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
    }
    UNROLL
    for (int i = 0; i < 8; i += 4) {
        UNROLL
        for (int j = 0; j < 2; ++j) {
            quads[i + 2 * j] = _mm256_shuffle_ps(pairs[i + j], pairs[i + 2 + j], 0x44);
            quads[i + 2 * j + 1] = _mm256_shuffle_ps(pairs[i + j], pairs[i + 2 + j], 0xEE);
        }
    }
    UNROLL
    for (int i = 0; i < 4; ++i) {
        rows[i] = (Floats)_mm256_permute2f128_ps(quads[i], quads[i + 4], 0x20);
        rows[i + 4] = (Floats)_mm256_permute2f128_ps(quads[i], quads[i + 4], 0x31);
    }
}

KERNEL_INLINE void stream(float *to, Floats value) { _mm256_stream_ps(to, value); }
KERNEL_INLINE void finish_streaming() { _mm_sfence(); }

}  // namespace

#include "lane_lists.hpp"
