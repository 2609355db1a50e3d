// The primitives in SSE 4.2 (x86-64-v2), four lanes.
#pragma once
#include <immintrin.h>

#include "simd_masks.hpp"

namespace {

KERNEL_INLINE Floats select(Mask mask, Floats a, Floats b) {
    return (Floats)_mm_blendv_ps((__m128)b, (__m128)a, (__m128)mask);
}
KERNEL_INLINE Ints select(Mask mask, Ints a, Ints b) {
    return bits_of(select(mask, float_of(a), float_of(b)));
}

KERNEL_INLINE Floats maximum(Floats a, Floats b) { return (Floats)_mm_max_ps(a, b); }
KERNEL_INLINE Floats minimum(Floats a, Floats b) { return (Floats)_mm_min_ps(a, b); }
KERNEL_INLINE Ints minimum(Ints a, Ints b) { return (Ints)_mm_min_epi32((__m128i)a, (__m128i)b); }
KERNEL_INLINE Ints maximum(Ints a, Ints b) { return (Ints)_mm_max_epi32((__m128i)a, (__m128i)b); }
KERNEL_INLINE LaneI8 minimum(LaneI8 a, int8_t b) {
    return (LaneI8)_mm_min_epi8((__m128i)a, _mm_set1_epi8(b));
}

KERNEL_INLINE uint32_t movemask(Mask mask) {
    return static_cast<uint32_t>(_mm_movemask_ps((__m128)mask));
}

KERNEL_INLINE Floats square_root(Floats value) { return (Floats)_mm_sqrt_ps(value); }
KERNEL_INLINE Floats nearest(Floats value) {
    return (Floats)_mm_round_ps(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
KERNEL_INLINE Floats floor(Floats value) { return (Floats)_mm_floor_ps(value); }
KERNEL_INLINE Ints truncate(Floats value) { return (Ints)_mm_cvttps_epi32(value); }

KERNEL_INLINE Ints load_halves(const uint8_t *from) {
    return (Ints)_mm_cvtepu16_epi32(_mm_cvtsi64_si128(read<int64_t>(from)));
}
KERNEL_INLINE void store_halves(uint8_t *to, Ints value) {
    const __m128i low = (__m128i)(value & 0xFFFF);
    write(to, _mm_cvtsi128_si64(_mm_packus_epi32(low, low)));
}

KERNEL_INLINE Ints widen(I8x16 levels, int part) {
    const __m128i all = (__m128i)levels;
    switch (part) {  // the shift needs a constant
    case 0: return (Ints)_mm_cvtepi8_epi32(all);
    case 1: return (Ints)_mm_cvtepi8_epi32(_mm_srli_si128(all, 4));
    case 2: return (Ints)_mm_cvtepi8_epi32(_mm_srli_si128(all, 8));
    default: return (Ints)_mm_cvtepi8_epi32(_mm_srli_si128(all, 12));
    }
}

KERNEL_INLINE LaneI16 narrow(Ints a, Ints b) {
    return (LaneI16)_mm_packs_epi32((__m128i)a, (__m128i)b);
}
KERNEL_INLINE LaneU8 narrow_unsigned(LaneI16 a, LaneI16 b) {
    return (LaneU8)_mm_packus_epi16((__m128i)a, (__m128i)b);
}
KERNEL_INLINE LaneI8 narrow_signed(LaneI16 a, LaneI16 b) {
    return (LaneI8)_mm_packs_epi16((__m128i)a, (__m128i)b);
}

KERNEL_INLINE LaneU8 repeat(U8x16 bytes) { return (LaneU8)bytes; }
KERNEL_INLINE LaneU8 shuffle_bytes(LaneU8 bytes, LaneU8 order) {
    return (LaneU8)_mm_shuffle_epi8((__m128i)bytes, (__m128i)order);
}

KERNEL_INLINE Floats permute(Floats table, Ints index) {
    const __m128i first = _mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12);
    const Ints place = (Ints)_mm_shuffle_epi8((__m128i)((index & 3) << 2), first) + 0x03020100;
    return (Floats)_mm_shuffle_epi8((__m128i)table, (__m128i)place);
}

KERNEL_INLINE void stream(float *to, Floats value) { _mm_stream_ps(to, value); }

}  // namespace

#include "lane_lists.hpp"
#include "simd_software.hpp"
#include "simd_x86.hpp"
