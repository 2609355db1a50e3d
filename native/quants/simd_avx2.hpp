// The primitives in AVX2 and F16C (x86-64-v3), eight lanes: what each is in one instruction, or in
// several, stands at the right. A primitive means the same in every simd_*.hpp.
#pragma once
#include <immintrin.h>

#include "simd_masks.hpp"

namespace {

KERNEL_INLINE Floats select(Mask mask, Floats a, Floats b) {  // vblendvps
    return (Floats)_mm256_blendv_ps((__m256)b, (__m256)a, (__m256)mask);
}
KERNEL_INLINE Ints select(Mask mask, Ints a, Ints b) {  // vblendvps
    return bits_of(select(mask, float_of(a), float_of(b)));
}

KERNEL_INLINE Floats maximum(Floats a, Floats b) {  // vmaxps
    return (Floats)_mm256_max_ps(a, b);
}
KERNEL_INLINE Floats minimum(Floats a, Floats b) {  // vminps
    return (Floats)_mm256_min_ps(a, b);
}
KERNEL_INLINE Ints minimum(Ints a, Ints b) {  // vpminsd
    return (Ints)_mm256_min_epi32((__m256i)a, (__m256i)b);
}
KERNEL_INLINE Ints maximum(Ints a, Ints b) {  // vpmaxsd
    return (Ints)_mm256_max_epi32((__m256i)a, (__m256i)b);
}
KERNEL_INLINE LaneI8 minimum(LaneI8 a, int8_t b) {  // vpminsb
    return (LaneI8)_mm256_min_epi8((__m256i)a, _mm256_set1_epi8(b));
}

// The mask as bits, the first lane lowest.
KERNEL_INLINE uint32_t movemask(Mask mask) {  // vmovmskps
    return static_cast<uint32_t>(_mm256_movemask_ps((__m256)mask));
}

// Rounded in the machine's fastest way: not for results that must equal ggml's.
KERNEL_INLINE Floats fmsub(Floats a, Floats b, Floats c) {  // vfmsub
    return (Floats)_mm256_fmsub_ps((__m256)a, (__m256)b, (__m256)c);
}

KERNEL_INLINE Floats square_root(Floats value) {  // vsqrtps
    return (Floats)_mm256_sqrt_ps(value);
}
KERNEL_INLINE Floats nearest(Floats value) {  // vroundps
    return (Floats)_mm256_round_ps(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
KERNEL_INLINE Floats floor(Floats value) {  // vroundps
    return (Floats)_mm256_floor_ps(value);
}
KERNEL_INLINE Ints truncate(Floats value) {  // vcvttps2dq
    return (Ints)_mm256_cvttps_epi32(value);
}

KERNEL_INLINE Ints load_halves(const uint8_t *from) {  // vpmovzxwd
    return (Ints)_mm256_cvtepu16_epi32(read<__m128i>(from));
}

// The low halves of all lanes.
KERNEL_INLINE __m128i narrow_to_16(Ints value) {  // vpackusdw, vextracti128
    const __m256i low = (__m256i)(value & 0xFFFF);
    return _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
}
KERNEL_INLINE void store_halves(uint8_t *to, Ints value) { write(to, narrow_to_16(value)); }

KERNEL_INLINE Floats float_of_half(Ints half) {  // vcvtph2ps
    return (Floats)_mm256_cvtph_ps(narrow_to_16(half));
}

// Sixteen levels as floats' integers, in parts.
KERNEL_INLINE Ints widen(I8x16 levels, int part) {  // vpmovsxbd
    const __m128i all = (__m128i)levels;
    return (Ints)_mm256_cvtepi8_epi32(part ? _mm_unpackhi_epi64(all, all) : all);
}

// Numbers out of range are clamped.
KERNEL_INLINE LaneI16 narrow(Ints a, Ints b) {  // vpackssdw
    return (LaneI16)_mm256_packs_epi32((__m256i)a, (__m256i)b);
}
KERNEL_INLINE LaneU8 narrow_unsigned(LaneI16 a, LaneI16 b) {  // vpackuswb
    return (LaneU8)_mm256_packus_epi16((__m256i)a, (__m256i)b);
}
KERNEL_INLINE LaneI8 narrow_signed(LaneI16 a, LaneI16 b) {  // vpacksswb
    return (LaneI8)_mm256_packs_epi16((__m256i)a, (__m256i)b);
}

// The same sixteen bytes for every four lanes.
KERNEL_INLINE LaneU8 repeat(U8x16 bytes) {  // vbroadcasti128
    return (LaneU8)_mm256_broadcastsi128_si256((__m128i)bytes);
}
// Bytes in another order within every four lanes; where the highest bit is set, zero.
KERNEL_INLINE LaneU8 shuffle_bytes(LaneU8 bytes, LaneU8 order) {  // vpshufb
    return (LaneU8)_mm256_shuffle_epi8((__m256i)bytes, (__m256i)order);
}

// Entries of a table by index; only the low bits of an index count, log2(lanes) of them.
KERNEL_INLINE Floats permute(Floats table, Ints index) {  // vpermps
    return (Floats)_mm256_permutevar8x32_ps((__m256)table, (__m256i)index);
}
// The same if each four lanes have their own four entries: several times faster.
KERNEL_INLINE Floats permute_in_fours(Floats table, Ints index) {  // vpermilps
    return (Floats)_mm256_permutevar_ps((__m256)table, (__m256i)index);
}

// A square of lanes, in registers: gathers are several times slower.
KERNEL_INLINE void transpose(Floats (&rows)[lanes]) {  // vunpcklps, vshufps, vperm2f128
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

// Past the caches to memory.
KERNEL_INLINE void stream(float *to, Floats value) { _mm256_stream_ps(to, value); }  // vmovntps

}  // namespace

#include "lane_lists.hpp"
#include "simd_x86.hpp"

namespace {

KERNEL_INLINE Ints half_of_float(Floats value) {  // vcvtps2ph
    const __m128i half = _mm256_cvtps_ph(with_ggml_nan(value), _MM_FROUND_TO_NEAREST_INT);
    return (Ints)_mm256_cvtepu16_epi32(half);
}

}  // namespace
