// The largest element of a block, in the ways of ggml: they treat NaN differently.
#pragma once
#include "lane.hpp"

namespace {

// The largest magnitude; a NaN becomes the largest, until the next element replaces it.
template <int Count, class Lane>
KERNEL_INLINE Lane largest_size(const Lane *x) {
    Lane largest{};
    UNROLL
    for (int i = 0; i < Count; ++i) largest = maximum(largest, absolute(x[i]));
    return largest;
}

// The largest magnitude; a NaN never counts.
template <int Count, class Lane>
KERNEL_INLINE Lane largest_number(const Lane *x) {
    Lane largest{};
    for (int i = 0; i < Count; ++i) largest = maximum(absolute(x[i]), largest);
    return largest;
}

// The element of the largest magnitude with its sign, the first of several; never a NaN.
template <int Count, class Lane>
KERNEL_INLINE Lane extreme_of(const Lane *x) {
    Lane size{}, extreme{};
    for (int i = 0; i < Count; ++i) {
        const Lane here = absolute(x[i]);
        extreme = select(less(size, here), x[i], extreme);
        size = maximum(here, size);
    }
    return extreme;
}

// Most lanes have one largest magnitude: that of the highest or the lowest element.
template <int Count>
KERNEL_INLINE Floats extreme_of(const Floats *x) {
    Floats highest{}, lowest{};
    UNROLL
    for (int i = 0; i < Count; ++i) {
        highest = maximum(x[i], highest);
        lowest = minimum(x[i], lowest);
    }
    const Mask tied = and_(equal(highest, -lowest), less(lowest, Floats{}));
    if (any(tied)) return extreme_of<Count, Floats>(x);
    return select(less(highest, -lowest), lowest, highest);
}

// The largest magnitude, if no lane has a NaN: compared as bits, a NaN is larger than all.
template <int Count>
KERNEL_INLINE Ints largest_bits(const Floats *x) {
    Ints largest{};
    UNROLL
    for (int i = 0; i < Count; ++i) largest = maximum(bits_of(absolute(x[i])), largest);
    return largest;
}

// Four neighbours of each lane as signed bytes, clamped.
KERNEL_INLINE LaneI8 four_bytes(const Ints *x) {
    return narrow_signed(narrow(x[0], x[1]), narrow(x[2], x[3]));
}

// The low eight bits as a signed number.
template <class Int>
KERNEL_INLINE Int low_byte(Int value) {
    return ((value & 255) ^ 128) - 128;
}

// Writes the low 8 bits of each lane to dst + lane * Stride.
template <int Stride>
KERNEL_INLINE void scatter_bytes(Ints bytes, uint8_t *dst) {
    int32_t values[lanes];
    memcpy(values, &bytes, sizeof values);
    UNROLL
    for (int lane = 0; lane < lanes; ++lane) {
        dst[lane * Stride] = static_cast<uint8_t>(values[lane]);
    }
}
template <int Stride>
KERNEL_INLINE void scatter_bytes(int32_t byte, uint8_t *dst) {
    *dst = static_cast<uint8_t>(byte);
}

}  // namespace
