// What Q3_K and Q6_K share: sixteen groups of sixteen levels around zero, a scale each.
#pragma once
#include "../searches/symmetric.hpp"

namespace {

// The number of the largest size, the first of several; never a NaN.
template <int Count, class Lane>
Lane extreme_of(const Lane *values) {
    Lane size{}, extreme{};
    for (int i = 0; i < Count; ++i) {
        const auto larger = less(size, absolute(values[i]));
        extreme = select(larger, values[i], extreme);
        size = select(larger, absolute(values[i]), size);
    }
    return extreme;
}

// The levels of a group under its rounded scale; where that is zero, ggml leaves those of
// the search.
template <int Top, class Lane, class Fit>
void symmetric_levels(const Lane *x, Lane scale, const Fit &fit, IntOf<Lane> *levels) {
    using Int = IntOf<Lane>;
    for (int i = 0; i < 16; ++i) {
        const Int level = minimum(nearest_int(x[i] / scale), all_ints<Int>(Top - 1));
        levels[i] = maximum(level, all_ints<Int>(-Top)) + Top;
    }
    const auto unscaled = equal(scale, Lane{});
    if (any(unscaled)) {
        for (int i = 0; i < 16; ++i) {
            levels[i] = select(unscaled, fit.template level<Top>(x[i], i), levels[i]);
        }
    }
}

// Integers cut to the eight bits of an int8_t.
template <class Int>
KERNEL_INLINE Int cut_to_byte(Int value) {
    return ((value & 255) ^ 128) - 128;
}

}  // namespace
