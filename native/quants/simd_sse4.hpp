// The primitives in SSE 4.2 (x86-64-v2), four lanes.
#pragma once
#include <immintrin.h>

namespace {

typedef Ints Mask;  // all bits of a lane set, or none

KERNEL_INLINE Mask less(Floats a, Floats b) { return a < b; }
KERNEL_INLINE Mask equal(Floats a, Floats b) { return a == b; }
KERNEL_INLINE Mask is_nan(Floats a) { return a != a; }
KERNEL_INLINE Mask above(Ints a, Ints b) { return a > b; }
KERNEL_INLINE Floats select(Mask mask, Floats a, Floats b) {
    return (Floats)_mm_blendv_ps((__m128)b, (__m128)a, (__m128)mask);
}
KERNEL_INLINE Ints select(Mask mask, Ints a, Ints b) {
    return bits_of(select(mask, float_of(a), float_of(b)));
}

KERNEL_INLINE Ints increment(Ints value, Mask where) { return value - where; }

KERNEL_INLINE Floats maximum(Floats a, Floats b) { return (Floats)_mm_max_ps(a, b); }
KERNEL_INLINE Floats minimum(Floats a, Floats b) { return (Floats)_mm_min_ps(a, b); }
KERNEL_INLINE Ints minimum(Ints a, Ints b) { return (Ints)_mm_min_epi32((__m128i)a, (__m128i)b); }
KERNEL_INLINE Ints maximum(Ints a, Ints b) { return (Ints)_mm_max_epi32((__m128i)a, (__m128i)b); }

KERNEL_INLINE uint32_t lanes_in(Mask mask) {
    return static_cast<uint32_t>(_mm_movemask_ps((__m128)mask));
}

// Rounded in the machine's fastest way: not for results that must equal ggml's.
KERNEL_INLINE Floats multiply_less(Floats a, Floats b, Floats c) { return a * b - c; }

KERNEL_INLINE Floats square_root(Floats value) { return (Floats)_mm_sqrt_ps(value); }
KERNEL_INLINE Floats nearest(Floats value) {
    return (Floats)_mm_round_ps(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

KERNEL_INLINE Ints truncate(Floats value) { return (Ints)_mm_cvttps_epi32(value); }

KERNEL_INLINE Ints above_unsigned(Ints a, Ints b) { return (a ^ INT32_MIN) > (b ^ INT32_MIN); }

KERNEL_INLINE Floats float_of_half(Ints half) {
    const Ints word = half << 16;
    const Ints magnitude = word + word;
    const Floats normal = float_of(shift_right(magnitude, 4) + (0xE0 << 23)) * 0x1.0p-112f;
    const Floats denormal = float_of(shift_right(magnitude, 17) | (126 << 23)) - 0.5f;
    const Mask small = above_unsigned(splat(1 << 27), magnitude);
    return float_of((word & INT32_MIN) | bits_of(select(small, denormal, normal)));
}

KERNEL_INLINE Ints half_of_float(Floats value) {
    const Ints magnitude = bits_of(value) << 1;
    const __m128i least = _mm_set1_epi32(0x71000000);
    const Ints bias = (Ints)_mm_max_epu32((__m128i)(magnitude & (255 << 24)), least);
    const Floats scaled = (absolute(value) * 0x1.0p+112f) * 0x1.0p-110f;
    const Ints bits = bits_of(float_of((Ints)((Words)shift_right(bias, 1) + 0x07800000)) + scaled);
    const Ints rounded = (shift_right(bits, 13) & 0x7C00) + (bits & 0x0FFF);
    return shift_right(sign_of(value), 16) | select(is_nan(value), splat(0x7E00), rounded);
}

KERNEL_INLINE float scalar_of_half(uint16_t half) { return float_of_half(half); }

KERNEL_INLINE Ints load_halves(const uint8_t *from) {
    return (Ints)_mm_cvtepu16_epi32(_mm_cvtsi64_si128(read<int64_t>(from)));
}

KERNEL_INLINE void store_halves(uint8_t *to, Ints value) {
    const __m128i low = (__m128i)(value & 0xFFFF);
    write(to, _mm_cvtsi128_si64(_mm_packus_epi32(low, low)));
}

KERNEL_INLINE Ints widen(Bytes levels, int part) {
    const __m128i all = (__m128i)levels;
    switch (part) {  // the shift needs a constant
        case 0: return (Ints)_mm_cvtepi8_epi32(all);
        case 1: return (Ints)_mm_cvtepi8_epi32(_mm_srli_si128(all, 4));
        case 2: return (Ints)_mm_cvtepi8_epi32(_mm_srli_si128(all, 8));
        default: return (Ints)_mm_cvtepi8_epi32(_mm_srli_si128(all, 12));
    }
}

KERNEL_INLINE Octets lookup(Octets table, Octets index) {
    return (Octets)_mm_shuffle_epi8((__m128i)table, (__m128i)index);
}

KERNEL_INLINE Floats floor(Floats value) { return (Floats)_mm_floor_ps(value); }

// Numbers out of range are clamped.
KERNEL_INLINE Shorts narrow(Ints a, Ints b) {
    return (Shorts)_mm_packs_epi32((__m128i)a, (__m128i)b);
}
KERNEL_INLINE LaneOctets narrow_again(Shorts a, Shorts b) {
    return (LaneOctets)_mm_packus_epi16((__m128i)a, (__m128i)b);
}

KERNEL_INLINE LaneBytes narrow_signed(Shorts a, Shorts b) {
    return (LaneBytes)_mm_packs_epi16((__m128i)a, (__m128i)b);
}
KERNEL_INLINE LaneBytes minimum(LaneBytes a, int8_t b) {
    return (LaneBytes)_mm_min_epi8((__m128i)a, _mm_set1_epi8(b));
}

KERNEL_INLINE LaneOctets lookup_16(Octets table, LaneOctets index) {
    const __m128i wide = (__m128i)table;
    return (LaneOctets)_mm_shuffle_epi8(wide, (__m128i)index);
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
    const __m128i wide = (__m128i)top;
    return (Ints)_mm_shuffle_epi8((__m128i)octets, wide) >> 24;
}

// Four numbers per lane, in order.
KERNEL_INLINE Ints words_of(LaneOctets octets) {
    const Bytes order = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
    const __m128i wide = (__m128i)order;
    return (Ints)_mm_shuffle_epi8((__m128i)octets, wide);
}

// Entries of a table by index; only the low bits of an index count, log2(lanes) of them.
KERNEL_INLINE Floats pick(Floats table, Ints index) {
    const __m128i first = _mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12);
    const Ints place = (Ints)_mm_shuffle_epi8((__m128i)((index & 3) << 2), first) + 0x03020100;
    return (Floats)_mm_shuffle_epi8((__m128i)table, (__m128i)place);
}
KERNEL_INLINE Floats pick_of_four(Floats table, Ints index) { return pick(table, index); }

KERNEL_INLINE void transpose(Floats (&rows)[lanes]) {
    const __m128 low01 = _mm_unpacklo_ps(rows[0], rows[1]);
    const __m128 low23 = _mm_unpacklo_ps(rows[2], rows[3]);
    const __m128 high01 = _mm_unpackhi_ps(rows[0], rows[1]);
    const __m128 high23 = _mm_unpackhi_ps(rows[2], rows[3]);
    rows[0] = (Floats)_mm_movelh_ps(low01, low23);
    rows[1] = (Floats)_mm_movehl_ps(low23, low01);
    rows[2] = (Floats)_mm_movelh_ps(high01, high23);
    rows[3] = (Floats)_mm_movehl_ps(high23, high01);
}

KERNEL_INLINE void stream(float *to, Floats value) { _mm_stream_ps(to, value); }
KERNEL_INLINE void finish_streaming() { _mm_sfence(); }

}  // namespace

#include "lane_lists.hpp"
