// The primitives in vector extensions alone.
#pragma once

namespace {

typedef Ints Mask;  // all bits of a lane set, or none

KERNEL_INLINE Mask less(Floats a, Floats b) { return a < b; }
KERNEL_INLINE Mask equal(Floats a, Floats b) { return a == b; }
KERNEL_INLINE Mask is_nan(Floats a) { return a != a; }
KERNEL_INLINE Mask above(Ints a, Ints b) { return a > b; }
KERNEL_INLINE Floats select(Mask mask, Floats a, Floats b) { return mask ? a : b; }
KERNEL_INLINE Ints select(Mask mask, Ints a, Ints b) { return mask ? a : b; }

KERNEL_INLINE Ints increment(Ints value, Mask where) { return value - where; }

KERNEL_INLINE Floats maximum(Floats a, Floats b) { return a > b ? a : b; }
KERNEL_INLINE Floats minimum(Floats a, Floats b) { return a < b ? a : b; }
KERNEL_INLINE Ints minimum(Ints a, Ints b) { return a < b ? a : b; }
KERNEL_INLINE Ints maximum(Ints a, Ints b) { return a > b ? a : b; }

KERNEL_INLINE uint32_t lanes_in(Mask mask) {
    uint32_t bits = 0;
    UNROLL
    for (int lane = 0; lane < lanes; ++lane) bits |= (mask[lane] & 1u) << lane;
    return bits;
}

// Rounded in the machine's fastest way: not for results that must equal ggml's.
KERNEL_INLINE Floats multiply_less(Floats a, Floats b, Floats c) { return a * b - c; }

KERNEL_INLINE Floats square_root(Floats value) {
    UNROLL
    for (int lane = 0; lane < lanes; ++lane) value[lane] = __builtin_sqrtf(value[lane]);
    return value;
}
KERNEL_INLINE Floats nearest(Floats value) { return value + 12582912.0f - 12582912.0f; }

KERNEL_INLINE Ints truncate(Floats value) {
    const Mask fits = (value >= -2147483648.0f) & (value < 2147483648.0f);
    const Ints inside = __builtin_convertvector(fits ? value : splat(0.0f), Ints);
    return fits ? inside : splat(INT32_MIN);
}

KERNEL_INLINE Floats float_of_half(Ints half) {
    const Ints word = half << 16;
    const Ints magnitude = word + word;
    const Floats normal = float_of(shift_right(magnitude, 4) + (0xE0 << 23)) * 0x1.0p-112f;
    const Floats denormal = float_of(shift_right(magnitude, 17) | (126 << 23)) - 0.5f;
    const Mask small = (Words)magnitude < (1u << 27);
    return float_of((word & INT32_MIN) | bits_of(small ? denormal : normal));
}

KERNEL_INLINE Ints half_of_float(Floats value) {
    const Words magnitude = (Words)bits_of(value) << 1;
    const Words exponent = magnitude & 0xFF000000u;
    const Words bias = exponent < 0x71000000u ? exponent * 0 + 0x71000000u : exponent;
    const Floats scaled = (absolute(value) * 0x1.0p+112f) * 0x1.0p-110f;
    const Ints bits = bits_of(float_of((Ints)((bias >> 1) + 0x07800000u)) + scaled);
    const Ints rounded = (shift_right(bits, 13) & 0x7C00) + (bits & 0x0FFF);
    const Mask nan = magnitude > 0xFF000000u;
    return shift_right(sign_of(value), 16) | (nan ? splat(0x7E00) : rounded);
}

KERNEL_INLINE float scalar_of_half(uint16_t half) { return float_of_half(half); }

KERNEL_INLINE Ints load_halves(const uint8_t *from) {
    typedef uint16_t Halves __attribute__((vector_size(2 * lanes)));
    return __builtin_convertvector(read<Halves>(from), Ints);
}

KERNEL_INLINE void store_halves(uint8_t *to, Ints value) {
    typedef uint16_t Halves __attribute__((vector_size(2 * lanes)));
    write(to, __builtin_convertvector(value, Halves));
}

KERNEL_INLINE Ints widen(Bytes levels, int part) {
    typedef int8_t Part __attribute__((vector_size(lanes)));
    Part bytes;
    memcpy(&bytes, reinterpret_cast<const int8_t *>(&levels) + part * lanes, sizeof bytes);
    return __builtin_convertvector(bytes, Ints);
}

KERNEL_INLINE Octets lookup(Octets table, Octets index) {
#if defined(__clang__)
    Octets found;
    for (int i = 0; i < 16; ++i) found[i] = table[index[i] & 15];
    return found;
#else
    return __builtin_shuffle(table, index);
#endif
}

KERNEL_INLINE Floats floor(Floats value) {
    UNROLL
    for (int lane = 0; lane < lanes; ++lane) value[lane] = __builtin_floorf(value[lane]);
    return value;
}

// Numbers out of range are clamped.
KERNEL_INLINE Shorts narrow(Ints a, Ints b) {
    const Ints low = splat(INT16_MIN), high = splat(INT16_MAX);
    const Ints first = minimum(maximum(a, low), high), second = minimum(maximum(b, low), high);
    return (Shorts)((first & 0xFFFF) | second << 16);
}
KERNEL_INLINE Shorts clamp(Shorts value, int16_t low, int16_t high) {
    const Shorts below = value < low, above = value > high;
    return (value & ~(below | above)) | (low & below) | (high & above);
}
KERNEL_INLINE Ints interleave(Shorts a, Shorts b) {
    const Words first = (Words)a & 0x00FF00FF, second = (Words)b & 0x00FF00FF;
    return (Ints)(first | second << 8);
}
KERNEL_INLINE LaneOctets narrow_again(Shorts a, Shorts b) {
    return (LaneOctets)interleave(clamp(a, 0, 255), clamp(b, 0, 255));
}
KERNEL_INLINE LaneBytes narrow_signed(Shorts a, Shorts b) {
    return (LaneBytes)interleave(clamp(a, -128, 127), clamp(b, -128, 127));
}
KERNEL_INLINE LaneBytes minimum(LaneBytes a, int8_t b) {
    const LaneBytes above = a > b;
    return (a & ~above) | (b & above);
}

KERNEL_INLINE LaneOctets lookup_16(Octets table, LaneOctets index) {
    for (int i = 0; i < 4 * lanes; ++i) index[i] = table[index[i] & 15];
    return index;
}
KERNEL_INLINE LaneOctets lookup_32(const uint8_t *table, LaneOctets index) {
    for (int i = 0; i < 4 * lanes; ++i) index[i] = table[index[i] & 31];
    return index;
}

// The n-th of each lane's four numbers, sign-extended: the first and the second are 16 bits apart.
KERNEL_INLINE Ints nth_of_lane(LaneOctets octets, int n) {
    return (Ints)octets << (24 - 16 * (n % 2) - 8 * (n / 2)) >> 24;
}

// Four numbers per lane, in order.
KERNEL_INLINE Ints words_of(LaneOctets octets) {
    const Ints words = (Ints)octets, middle = (words & 0x0000FF00) << 8;
    return (words & static_cast<int32_t>(0xFF0000FF)) | middle | (shift_right(words, 8) & 0xFF00);
}

// Entries of a table by index; only the low bits of an index count, log2(lanes) of them.
KERNEL_INLINE Floats pick(Floats table, Ints index) {
#if defined(__clang__)
    Floats found;
    for (int lane = 0; lane < lanes; ++lane) found[lane] = table[index[lane] & (lanes - 1)];
    return found;
#else
    return __builtin_shuffle(table, index);
#endif
}
KERNEL_INLINE Floats pick_of_four(Floats table, Ints index) { return pick(table, index); }

#if GGUFKIT_LANES
// Through memory: a forced lane count is for tests, not for speed.
KERNEL_INLINE void transpose(Floats (&rows)[lanes]) {
    float square[lanes][lanes], turned[lanes][lanes];
    memcpy(square, rows, sizeof square);
    for (int i = 0; i < lanes * lanes; ++i) turned[i % lanes][i / lanes] = square[i / lanes][i % lanes];
    memcpy(rows, turned, sizeof turned);
}
#else
KERNEL_INLINE void transpose(Floats (&rows)[lanes]) {
    const Floats low02 = __builtin_shufflevector(rows[0], rows[2], 0, 4, 1, 5);
    const Floats low13 = __builtin_shufflevector(rows[1], rows[3], 0, 4, 1, 5);
    const Floats high02 = __builtin_shufflevector(rows[0], rows[2], 2, 6, 3, 7);
    const Floats high13 = __builtin_shufflevector(rows[1], rows[3], 2, 6, 3, 7);
    rows[0] = __builtin_shufflevector(low02, low13, 0, 4, 1, 5);
    rows[1] = __builtin_shufflevector(low02, low13, 2, 6, 3, 7);
    rows[2] = __builtin_shufflevector(high02, high13, 0, 4, 1, 5);
    rows[3] = __builtin_shufflevector(high02, high13, 2, 6, 3, 7);
}
#endif

KERNEL_INLINE void stream(float *to, Floats value) { store(to, value); }
KERNEL_INLINE void finish_streaming() {}

}  // namespace

#include "lane_lists.hpp"
