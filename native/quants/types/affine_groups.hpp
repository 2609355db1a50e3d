// Shared by Q2_K, Q4_K and Q5_K: groups are fitted one by one, and then share two scales.
#pragma once
#include "../searches/affine.hpp"
#include "../searches/positive.hpp"

namespace {

template <class Lane, int Count>
struct GroupFits {
    AffineFit<Lane> of[Count];
    MaskOf<Lane> needs_fallback;
};

// The rounded scales and minima of the groups.
template <class Lane, int Count>
struct GroupScales {
    IntOf<Lane> d, minimum;  // halves
    IntOf<Lane> scales[Count], minima[Count];
};

// The importance of a column, times a mix of the sizes of the element and of the block.
template <int Size, class Lane, class Importance>
void weigh(const Lane *x, int first, const Importance &importance, Lane block_square,
           Lane *weights) {
    importance.template load<Size>(first, weights);
    for (int i = 0; i < Size; ++i) {
        const Lane here = x[first + i];
        weights[i] = weights[i] * square_root(block_square + here * here);
    }
}

template <class Lane>
Lane sum_of_squares(const Lane *x) {
    Lane sum{};
    for (int i = 0; i < 256; ++i) sum = sum + x[i] * x[i];
    return sum;
}

// The weights of all elements of a block, as the encoder has them.
template <class Plain, int Size, class Lane, class Importance>
KERNEL_INLINE void weigh_groups(const Lane *x, const Importance &importance, Lane *weights) {
    Lane square{};
    if constexpr (is_weighted<Importance>) {
        square = Plain::square_share * sum_of_squares(x) / 256.0f;
    }
    for (int i = 0; i < 256; i += Size) {
        if constexpr (is_weighted<Importance>) {
            weigh<Size>(x, i, importance, square, weights + i);
        } else {
            Plain::weigh(x + i, weights + i);
        }
    }
}

// `Plain` has the differences of types: `weigh` gives the weights of a group without importance,
// `square_share` is the share of the block's mean square with importance.
template <class Plain, class Rule, class Lane, class Importance>
GroupFits<Lane, 256 / Rule::size> fit_groups(const Rule &rule, const Lane *x,
                                             const Importance &importance) {
    constexpr int size = Rule::size, count = 256 / size;
    constexpr int interleaved = is_scalar<Lane> ? 1 : lanes == 16 ? 4 : 8;  // as the cache allows
    GroupFits<Lane, count> fits;
    fits.needs_fallback = no_lane<Lane>();
    Lane block_square{};
    if constexpr (is_weighted<Importance>) {
        block_square = Plain::square_share * sum_of_squares(x) / 256.0f;
    }
    for (int group = 0; group < count; group += interleaved) {
        Lane weights[size * interleaved];
        for (int i = 0; i < interleaved; ++i) {
            const int first = size * (group + i);
            if constexpr (is_weighted<Importance>) {
                weigh<size>(x, first, importance, block_square, weights + size * i);
            } else {
                Plain::weigh(x + first, weights + size * i);
            }
        }
        fit_affine<interleaved>(rule, x + size * group, weights, fits.of + group);
    }
    for (const auto &fit : fits.of)
        fits.needs_fallback = or_(fits.needs_fallback, fit.needs_fallback);
    return fits;
}

// Plain: the largest number gets the level `Top`. Writes levels and returns the scale's half.
template <int Top, int Count, class Lane>
IntOf<Lane> spread(const Lane *values, IntOf<Lane> *levels) {
    const Lane zero{};
    Lane highest = zero;
    for (int i = 0; i < Count; ++i) highest = maximum(values[i], highest);
    const Lane inverse = select(less(zero, highest), broadcast<Lane>(Top) / highest, zero);
    for (int i = 0; i < Count; ++i) levels[i] = nearest_int(inverse * values[i]) & 255;
    return half_of_float(highest / broadcast<Lane>(Top));
}

template <bool Weighted, int Top, int Count, class Lane>
GroupScales<Lane, Count> round_scales(const GroupFits<Lane, Count> &fits) {
    GroupScales<Lane, Count> rounded;
    Lane scales[Count], minima[Count], weights[Count];
    for (int i = 0; i < Count; ++i) {
        scales[i] = fits.of[i].scale;
        minima[i] = -fits.of[i].lowest;
        weights[i] = fits.of[i].sum_of_weights;
    }
    if constexpr (Weighted) {
        PositiveSearch<Count, Top, Lane> of_scales(scales, weights), of_minima(minima, weights);
        rounded.d = half_of_float(of_scales.run(rounded.scales));
        rounded.minimum = half_of_float(of_minima.run(rounded.minima));
    } else {
        rounded.d = spread<Top, Count>(scales, rounded.scales);
        rounded.minimum = spread<Top, Count>(minima, rounded.minima);
    }
    return rounded;
}

// The levels of a group under the rounded scales; if its scale is zero, ggml keeps those of the
// search.
template <int Size, int Top, class Lane>
void group_levels(const Lane *x, const AffineFit<Lane> &fit, Lane scale, Lane lowest,
                  IntOf<Lane> *levels) {
    using Int = IntOf<Lane>;
    const Int none{}, top = broadcast_int<Int>(Top);
    for (int i = 0; i < Size; ++i) {
        levels[i] = maximum(minimum(nearest_int((x[i] + lowest) / scale), top), none);
    }
    const auto unscaled = equal(scale, broadcast<Lane>(0.0f));
    if (any(unscaled)) {
        for (int i = 0; i < Size; ++i) {
            levels[i] = select(unscaled, fit.level(x[i], Top), levels[i]);
        }
    }
}

}  // namespace
