// The primitives in vector extensions alone.
#pragma once
#include "simd_masks.hpp"

namespace {

KERNEL_INLINE Floats select(Mask mask, Floats a, Floats b) { return mask ? a : b; }
KERNEL_INLINE Ints select(Mask mask, Ints a, Ints b) { return mask ? a : b; }

KERNEL_INLINE Floats maximum(Floats a, Floats b) { return a > b ? a : b; }
KERNEL_INLINE Floats minimum(Floats a, Floats b) { return a < b ? a : b; }
KERNEL_INLINE Ints minimum(Ints a, Ints b) { return a < b ? a : b; }
KERNEL_INLINE Ints maximum(Ints a, Ints b) { return a > b ? a : b; }

KERNEL_INLINE uint32_t movemask(Mask mask) {
    uint32_t bits = 0;
    UNROLL
    for (int lane = 0; lane < lanes; ++lane) bits |= (mask[lane] & 1u) << lane;
    return bits;
}

KERNEL_INLINE Floats square_root(Floats value) {
    UNROLL
    for (int lane = 0; lane < lanes; ++lane) value[lane] = __builtin_sqrtf(value[lane]);
    return value;
}
KERNEL_INLINE Floats nearest(Floats value) { return value + 12582912.0f - 12582912.0f; }

KERNEL_INLINE Ints truncate(Floats value) {
    const Mask fits = (value >= -2147483648.0f) & (value < 2147483648.0f);
    const Ints inside = __builtin_convertvector(fits ? value : broadcast(0.0f), Ints);
    return fits ? inside : broadcast(INT32_MIN);
}

KERNEL_INLINE Ints load_halves(const uint8_t *from) {
    typedef uint16_t Halves __attribute__((vector_size(2 * lanes)));
    return __builtin_convertvector(read<Halves>(from), Ints);
}

KERNEL_INLINE void store_halves(uint8_t *to, Ints value) {
    typedef uint16_t Halves __attribute__((vector_size(2 * lanes)));
    write(to, __builtin_convertvector(value, Halves));
}

#if GGUFKIT_LANES
KERNEL_INLINE Ints widen(I8x16 levels, int part) {
    typedef int8_t Part __attribute__((vector_size(lanes)));
    Part bytes;
    memcpy(&bytes, reinterpret_cast<const int8_t *>(&levels) + part * lanes, sizeof bytes);
    return __builtin_convertvector(bytes, Ints);
}
#else
// Each byte four times, shifted down with its sign: GCC converts vectors of four bytes one by one.
KERNEL_INLINE Ints widen(I8x16 levels, int part) {
    const I8x16 low = __builtin_shufflevector(levels, levels, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6,
                                              6, 7, 7);
    const I8x16 high = __builtin_shufflevector(levels, levels, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12,
                                               13, 13, 14, 14, 15, 15);
    const LaneI16 pairs = (LaneI16)(part < 2 ? low : high);
    const LaneI16 first = __builtin_shufflevector(pairs, pairs, 0, 0, 1, 1, 2, 2, 3, 3);
    const LaneI16 second = __builtin_shufflevector(pairs, pairs, 4, 4, 5, 5, 6, 6, 7, 7);
    return (Ints)(part % 2 ? second : first) >> 24;
}
#endif

KERNEL_INLINE U8x16 lookup(U8x16 table, U8x16 index) {
#if defined(__clang__)
    U8x16 result;
    for (int i = 0; i < 16; ++i) result[i] = table[index[i] & 15];
    return result;
#else
    return __builtin_shuffle(table, index);
#endif
}

KERNEL_INLINE Floats floor(Floats value) {
    UNROLL
    for (int lane = 0; lane < lanes; ++lane) value[lane] = __builtin_floorf(value[lane]);
    return value;
}

KERNEL_INLINE LaneI16 narrow(Ints a, Ints b) {
    const Ints low = broadcast(INT16_MIN), high = broadcast(INT16_MAX);
    const Ints first = minimum(maximum(a, low), high), second = minimum(maximum(b, low), high);
    return (LaneI16)((first & 0xFFFF) | second << 16);
}
KERNEL_INLINE LaneI16 clamp(LaneI16 value, int16_t low, int16_t high) {
    const LaneI16 below = value<low, above = value> high;
    return (value & ~(below | above)) | (low & below) | (high & above);
}
KERNEL_INLINE Ints interleave(LaneI16 a, LaneI16 b) {
    const Words first = (Words)a & 0x00FF00FF, second = (Words)b & 0x00FF00FF;
    return (Ints)(first | second << 8);
}
KERNEL_INLINE LaneU8 narrow_unsigned(LaneI16 a, LaneI16 b) {
    return (LaneU8)interleave(clamp(a, 0, 255), clamp(b, 0, 255));
}
KERNEL_INLINE LaneI8 narrow_signed(LaneI16 a, LaneI16 b) {
    return (LaneI8)interleave(clamp(a, -128, 127), clamp(b, -128, 127));
}
KERNEL_INLINE LaneI8 minimum(LaneI8 a, int8_t b) {
    const LaneI8 above = a > b;
    return (a & ~above) | (b & above);
}

KERNEL_INLINE LaneU8 lookup_16(U8x16 table, LaneU8 index) {
    for (int i = 0; i < 4 * lanes; ++i) index[i] = table[index[i] & 15];
    return index;
}
KERNEL_INLINE LaneU8 lookup_32(const uint8_t *table, LaneU8 index) {
    for (int i = 0; i < 4 * lanes; ++i) index[i] = table[index[i] & 31];
    return index;
}

// The n-th of each lane's four numbers, sign-extended: the first and the second are 16 bits apart.
KERNEL_INLINE Ints nth_of_lane(LaneU8 bytes, int n) {
    return (Ints)bytes << (24 - 16 * (n % 2) - 8 * (n / 2)) >> 24;
}

// Four numbers per lane, in order.
KERNEL_INLINE Ints deinterleave(LaneU8 bytes) {
    const Ints words = (Ints)bytes, middle = (words & 0x0000FF00) << 8;
    return (words & static_cast<int32_t>(0xFF0000FF)) | middle | (shift_right(words, 8) & 0xFF00);
}

KERNEL_INLINE Floats permute(Floats table, Ints index) {
#if defined(__clang__)
    Floats result;
    for (int lane = 0; lane < lanes; ++lane) result[lane] = table[index[lane] & (lanes - 1)];
    return result;
#else
    return __builtin_shuffle(table, index);
#endif
}
KERNEL_INLINE void stream(float *to, Floats value) { store(to, value); }
KERNEL_INLINE void finish_streaming() {}

}  // namespace

#include "lane_lists.hpp"
#include "simd_software.hpp"
