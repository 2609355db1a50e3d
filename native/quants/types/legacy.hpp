// What Q4_0, Q4_1, Q5_0 and Q5_1 share: blocks of 32 levels, element i and i + 16 in one byte.
#pragma once
#include "../simd.hpp"

namespace {

constexpr float largest_float = 3.40282347e+38f;  // FLT_MAX

// The element of the largest magnitude with its sign, the first of several; never a NaN.
KERNEL_INLINE float signed_extreme(const float *x) {
    float size = 0.0f, extreme = 0.0f;
    for (int i = 0; i < 32; ++i) {
        if (size < absolute(x[i])) {
            size = absolute(x[i]);
            extreme = x[i];
        }
    }
    return extreme;
}

KERNEL_INLINE Floats signed_extreme(const Floats *x) {
    Floats size = splat(0.0f), extreme = splat(0.0f);
    UNROLL
    for (int i = 0; i < 32; ++i) {
        const Floats here = absolute(x[i]);
        extreme = select(less(size, here), x[i], extreme);
        size = maximum(here, size);  // keeps the size where here is NaN
    }
    return extreme;
}

template <class Value>
struct Range {
    Value lowest, highest;
};

// NaN counts neither way; a block of nothing else keeps the inverted range, as in ggml.
KERNEL_INLINE Range<float> range_of(const float *x) {
    Range<float> range{largest_float, -largest_float};
    for (int i = 0; i < 32; ++i) {
        if (x[i] < range.lowest) range.lowest = x[i];
        if (x[i] > range.highest) range.highest = x[i];
    }
    return range;
}

KERNEL_INLINE Range<Floats> range_of(const Floats *x) {
    Range<Floats> range{splat(largest_float), splat(-largest_float)};
    UNROLL
    for (int i = 0; i < 32; ++i) {
        range.lowest = minimum(x[i], range.lowest);
        range.highest = maximum(x[i], range.highest);
    }
    return range;
}

// The low four bits of 32 levels as 16 bytes.
template <int Stride>
KERNEL_INLINE void store_nibbles(const Ints *levels, uint8_t *dst) {
    Ints words[4];
    UNROLL
    for (int i = 0; i < 4; ++i) {
        const Ints *low = levels + 4 * i, *high = low + 16;
        const Ints lows = pack_bytes(low[0], low[1], low[2], low[3]);
        const Ints highs = pack_bytes(high[0], high[1], high[2], high[3]);
        words[i] = (lows & 0x0F0F0F0F) | (highs & 0x0F0F0F0F) << 4;
    }
    store_words<4, Stride>(words, dst);
}

// Bit 4 of 32 levels as 4 bytes.
template <int Stride>
KERNEL_INLINE void store_fifths(const Ints *levels, uint8_t *dst) {
    Ints word = splat(0);
    UNROLL
    for (int i = 0; i < 32; ++i) word |= shift_right(levels[i] & 16, 4) << i;
    store_words<1, Stride>(&word, dst);
}

inline void split_fifths(const uint8_t *levels, uint8_t *fifths, uint8_t *pairs) {
    uint32_t word = 0;
    for (int i = 0; i < 32; ++i) word |= static_cast<uint32_t>((levels[i] >> 4) & 1) << i;
    for (int i = 0; i < 16; ++i) {
        pairs[i] = static_cast<uint8_t>((levels[i] & 15) | (levels[i + 16] & 15) << 4);
    }
    write(fifths, word);
}

inline void join_fifths(const uint8_t *fifths, const uint8_t *pairs, uint8_t *levels) {
    const uint32_t word = read<uint32_t>(fifths);
    for (int i = 0; i < 16; ++i) {
        levels[i] = static_cast<uint8_t>((pairs[i] & 15) | (word >> i & 1) << 4);
        levels[i + 16] = static_cast<uint8_t>(pairs[i] >> 4 | (word >> (i + 16) & 1) << 4);
    }
}

}  // namespace
