// Shared by Q3_K and Q6_K: sixteen groups of sixteen levels around zero, a scale each.
#pragma once
#include "../extremes.hpp"
#include "../searches/symmetric.hpp"

namespace {

// The levels of a group under its rounded scale; if that is zero, ggml keeps those of the search.
template <int Top, class Lane, class Fit>
void symmetric_levels(const Lane *x, Lane scale, const Fit &fit, IntOf<Lane> *levels) {
    using Int = IntOf<Lane>;
    for (int i = 0; i < 16; ++i) {
        const Int level = minimum(nearest_int(x[i] / scale), broadcast_int<Int>(Top - 1));
        levels[i] = maximum(level, broadcast_int<Int>(-Top)) + Top;
    }
    const auto unscaled = equal(scale, Lane{});
    if (any(unscaled)) {
        for (int i = 0; i < 16; ++i) {
            levels[i] = select(unscaled, fit.template level<Top>(x[i], i), levels[i]);
        }
    }
}

}  // namespace
