// The primitives in AVX-512 F, BW, DQ and VL (x86-64-v4), sixteen lanes.
#pragma once
#include <immintrin.h>

namespace {

typedef __mmask16 Mask;

KERNEL_INLINE Mask less(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
KERNEL_INLINE Mask equal(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
KERNEL_INLINE Mask is_nan(Floats a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }
KERNEL_INLINE Mask greater(Ints a, Ints b) {
    return _mm512_cmpgt_epi32_mask((__m512i)a, (__m512i)b);
}
KERNEL_INLINE Floats select(Mask mask, Floats a, Floats b) {
    return (Floats)_mm512_mask_blend_ps(mask, b, a);
}
KERNEL_INLINE Ints select(Mask mask, Ints a, Ints b) {
    return (Ints)_mm512_mask_blend_epi32(mask, (__m512i)b, (__m512i)a);
}

KERNEL_INLINE Ints increment(Ints value, Mask where) { return select(where, value + 1, value); }

KERNEL_INLINE Floats maximum(Floats a, Floats b) { return (Floats)_mm512_max_ps(a, b); }
KERNEL_INLINE Floats minimum(Floats a, Floats b) { return (Floats)_mm512_min_ps(a, b); }
KERNEL_INLINE Ints minimum(Ints a, Ints b) {
    return (Ints)_mm512_min_epi32((__m512i)a, (__m512i)b);
}
KERNEL_INLINE Ints maximum(Ints a, Ints b) {
    return (Ints)_mm512_max_epi32((__m512i)a, (__m512i)b);
}

KERNEL_INLINE uint32_t movemask(Mask mask) { return mask; }

KERNEL_INLINE Floats fmsub(Floats a, Floats b, Floats c) {
    return (Floats)_mm512_fmsub_ps((__m512)a, (__m512)b, (__m512)c);
}

KERNEL_INLINE Floats square_root(Floats value) { return (Floats)_mm512_sqrt_ps(value); }
KERNEL_INLINE Floats nearest(Floats value) {
    return (Floats)_mm512_roundscale_ps(value, _MM_FROUND_TO_NEAREST_INT);
}

KERNEL_INLINE Ints truncate(Floats value) { return (Ints)_mm512_cvttps_epi32(value); }

KERNEL_INLINE Floats float_of_half(Ints half) {
    return (Floats)_mm512_cvtph_ps(_mm512_cvtepi32_epi16((__m512i)half));
}

KERNEL_INLINE Ints load_halves(const uint8_t *from) {
    return (Ints)_mm512_cvtepu16_epi32(read<__m256i>(from));
}

KERNEL_INLINE void store_halves(uint8_t *to, Ints value) {
    write(to, _mm512_cvtepi32_epi16((__m512i)value));
}

KERNEL_INLINE Ints widen(I8x16 levels, int) { return (Ints)_mm512_cvtepi8_epi32((__m128i)levels); }

KERNEL_INLINE Floats floor(Floats value) {
    return (Floats)_mm512_roundscale_ps(value, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}

KERNEL_INLINE LaneI16 narrow(Ints a, Ints b) {
    return (LaneI16)_mm512_packs_epi32((__m512i)a, (__m512i)b);
}
KERNEL_INLINE LaneU8 narrow_unsigned(LaneI16 a, LaneI16 b) {
    return (LaneU8)_mm512_packus_epi16((__m512i)a, (__m512i)b);
}

KERNEL_INLINE LaneI8 narrow_signed(LaneI16 a, LaneI16 b) {
    return (LaneI8)_mm512_packs_epi16((__m512i)a, (__m512i)b);
}
KERNEL_INLINE LaneI8 minimum(LaneI8 a, int8_t b) {
    return (LaneI8)_mm512_min_epi8((__m512i)a, _mm512_set1_epi8(b));
}

KERNEL_INLINE LaneU8 repeat(U8x16 bytes) { return (LaneU8)_mm512_broadcast_i32x4((__m128i)bytes); }
KERNEL_INLINE LaneU8 shuffle_bytes(LaneU8 bytes, LaneU8 order) {
    return (LaneU8)_mm512_shuffle_epi8((__m512i)bytes, (__m512i)order);
}

KERNEL_INLINE Floats permute(Floats table, Ints index) {
    return (Floats)_mm512_permutexvar_ps((__m512i)index, (__m512)table);
}
KERNEL_INLINE Floats permute_in_fours(Floats table, Ints index) { return permute(table, index); }

KERNEL_INLINE Ints compress_lanes(uint32_t mask) {
    const Ints numbers = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return (Ints)_mm512_maskz_compress_epi32(static_cast<Mask>(mask), (__m512i)numbers);
}

// Exchanges pairs, then quads, then quarters of rows.
KERNEL_INLINE void transpose(Floats (&rows)[lanes]) {
    __m512 pairs[16], quads[16];
    UNROLL
    for (int i = 0; i < 16; i += 2) {
        pairs[i] = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
        pairs[i + 1] = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
    }
    UNROLL
    for (int i = 0; i < 16; i += 4) {
        UNROLL
        for (int j = 0; j < 2; ++j) {
            quads[i + 2 * j] = _mm512_shuffle_ps(pairs[i + j], pairs[i + 2 + j], 0x44);
            quads[i + 2 * j + 1] = _mm512_shuffle_ps(pairs[i + j], pairs[i + 2 + j], 0xEE);
        }
    }
    UNROLL
    for (int i = 0; i < 4; ++i) {
        const __m512 even_low = _mm512_shuffle_f32x4(quads[i], quads[i + 4], 0x88);
        const __m512 odd_low = _mm512_shuffle_f32x4(quads[i], quads[i + 4], 0xDD);
        const __m512 even_high = _mm512_shuffle_f32x4(quads[i + 8], quads[i + 12], 0x88);
        const __m512 odd_high = _mm512_shuffle_f32x4(quads[i + 8], quads[i + 12], 0xDD);
        rows[i] = (Floats)_mm512_shuffle_f32x4(even_low, even_high, 0x88);
        rows[i + 4] = (Floats)_mm512_shuffle_f32x4(odd_low, odd_high, 0x88);
        rows[i + 8] = (Floats)_mm512_shuffle_f32x4(even_low, even_high, 0xDD);
        rows[i + 12] = (Floats)_mm512_shuffle_f32x4(odd_low, odd_high, 0xDD);
    }
}

KERNEL_INLINE void stream(float *to, Floats value) { _mm512_stream_ps(to, value); }

}  // namespace

#include "simd_x86.hpp"

namespace {

KERNEL_INLINE Ints half_of_float(Floats value) {
    const __m256i half = _mm512_cvtps_ph(with_ggml_nan(value), _MM_FROUND_TO_NEAREST_INT);
    return (Ints)_mm512_cvtepu16_epi32(half);
}

}  // namespace
