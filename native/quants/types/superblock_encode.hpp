// How Q4_K and Q5_K encode: eight groups are fitted one by one, and then share two scales.
#pragma once
#include "../searches/affine.hpp"
#include "../searches/positive.hpp"

namespace {

template <int Top, int Candidates>
using GroupRule = AffineRule<32, Top, Candidates>;

// What the scales and minima of the groups became.
template <class Lane>
struct GroupScales {
    IntOf<Lane> d, minimum;  // halves
    IntOf<Lane> scales[8], minima[8];
};

template <class Lane>
struct GroupFits {
    AffineFit<Lane> of[8];
    MaskOf<Lane> strange;
};

// Without importance, what counts is an element's size, and the size of its group.
template <class Lane>
void weigh(const Lane *x, int first, Unweighted, Lane *weights) {
    Lane sum{};
    for (int i = 0; i < 32; ++i) sum = sum + x[first + i] * x[first + i];
    const Lane size = square_root(sum / 32.0f);
    for (int i = 0; i < 32; ++i) weights[i] = size + absolute(x[first + i]);
}

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

template <class Rule, class Lane, class Importance>
GroupFits<Lane> fit_groups(const Rule &rule, const Lane *x, const Importance &importance) {
    constexpr int abreast = Lanes<Lane>::abreast;
    GroupFits<Lane> fits;
    fits.strange = any_not_finite<256>(x);
    Lane block_square{};
    if constexpr (is_weighted<Importance>) block_square = 2.0f * sum_of_squares(x) / 256.0f;
    for (int group = 0; group < 8; group += abreast) {
        Lane weights[32 * abreast];
        for (int i = 0; i < abreast; ++i) {
            const int first = 32 * (group + i);
            if constexpr (is_weighted<Importance>) {
                weigh<32>(x, first, importance, block_square, weights + 32 * i);
            } else {
                weigh(x, first, importance, weights + 32 * i);
            }
        }
        fit_affine(rule, x + 32 * group, weights, fits.of + group);
    }
    for (const auto &fit : fits.of) fits.strange = either(fits.strange, fit.strange);
    return fits;
}

// Plain: the largest number gets the level 63. Writes levels and returns the scale's half.
template <class Lane>
IntOf<Lane> spread_to_63(const Lane *values, IntOf<Lane> *levels) {
    const Lane zero{};
    Lane highest = zero;
    for (int i = 0; i < 8; ++i) highest = maximum(values[i], highest);
    const Lane inverse = select(less(zero, highest), 63.0f / highest, zero);
    for (int i = 0; i < 8; ++i) {
        const IntOf<Lane> level = nearest_int(inverse * values[i]) & 255;
        levels[i] = minimum(level, all_ints<IntOf<Lane>>(63));
    }
    return half_of_float(highest / 63.0f);
}

// ggml does so for Q5_K and not for Q4_K.
template <class Lane>
void clamp_to_63(GroupScales<Lane> &rounded) {
    for (auto &level : rounded.scales) level = minimum(level, all_ints<IntOf<Lane>>(63));
    for (auto &level : rounded.minima) level = minimum(level, all_ints<IntOf<Lane>>(63));
}

template <bool Weighted, int Top, class Lane>
GroupScales<Lane> round_scales(const GroupFits<Lane> &fits) {
    GroupScales<Lane> rounded;
    Lane scales[8], minima[8], weights[8];
    for (int i = 0; i < 8; ++i) {
        scales[i] = fits.of[i].scale;
        minima[i] = -fits.of[i].lowest;
        weights[i] = fits.of[i].sum_of_weights;
    }
    if constexpr (Weighted) {
        PositiveSearch<8, 63, Lane> of_scales(scales, weights), of_minima(minima, weights);
        rounded.d = half_of_float(of_scales.run(rounded.scales));
        rounded.minimum = half_of_float(of_minima.run(rounded.minima));
        if constexpr (Top > 15) clamp_to_63(rounded);
    } else {
        rounded.d = spread_to_63(scales, rounded.scales);
        rounded.minimum = spread_to_63(minima, rounded.minima);
    }
    return rounded;
}

// Packs the levels of the groups' scales as get_scale_min_k4 reads them, three words of four
// bytes, and reads them back: a level above 63, which a weighted Q4_K may have, loses bits.
template <class Lane>
void pack_scales(GroupScales<Lane> &rounded, IntOf<Lane> *words) {
    using Int = IntOf<Lane>;
    Int low[4], middle[4], high[4];
    for (int i = 0; i < 4; ++i) {
        Int &scale = rounded.scales[i], &later_scale = rounded.scales[i + 4];
        Int &lowest = rounded.minima[i], &later_lowest = rounded.minima[i + 4];
        low[i] = (scale | later_scale >> 4 << 6) & 255;
        middle[i] = (lowest | later_lowest >> 4 << 6) & 255;
        high[i] = (later_scale & 15) | (later_lowest & 15) << 4;
        scale = low[i] & 63;
        lowest = middle[i] & 63;
        later_scale = (high[i] & 15) | low[i] >> 6 << 4;
        later_lowest = high[i] >> 4 | middle[i] >> 6 << 4;
    }
    words[0] = pack_bytes(low[0], low[1], low[2], low[3]);
    words[1] = pack_bytes(middle[0], middle[1], middle[2], middle[3]);
    words[2] = pack_bytes(high[0], high[1], high[2], high[3]);
}

// The levels of a group under the rounded scales; where its scale is zero, ggml leaves those of
// the search.
template <int Size, int Top, class Lane>
void group_levels(const Lane *x, const AffineFit<Lane> &fit, Lane scale, Lane lowest,
                  IntOf<Lane> *levels) {
    using Int = IntOf<Lane>;
    const Int none{}, top = all_ints<Int>(Top);
    for (int i = 0; i < Size; ++i) {
        levels[i] = maximum(minimum(nearest_int((x[i] + lowest) / scale), top), none);
    }
    const auto unscaled = equal(scale, all<Lane>(0.0f));
    if (any(unscaled)) {
        for (int i = 0; i < Size; ++i) {
            levels[i] = select(unscaled, fit.level(x[i], Top), levels[i]);
        }
    }
}

// Encodes a block into words: two halves, three words of scales, for Q5_K eight of fifth bits,
// and 32 of pairs.
template <int Top, int BlockBytes, class Rule, class Lane, class Importance>
MaskOf<Lane> encode_superblock(const Rule &rule, const Lane *x, const Importance &importance,
                               uint8_t *bytes) {
    using Int = IntOf<Lane>;
    constexpr int fifths = Top > 15 ? 8 : 0;
    const GroupFits<Lane> fits = fit_groups(rule, x, importance);
    GroupScales<Lane> rounded = round_scales<is_weighted<Importance>, Top>(fits);
    Int words[4 + fifths + 32] = {rounded.d | rounded.minimum << 16};
    pack_scales<Lane>(rounded, words + 1);
    const Lane d = float_of_half(rounded.d), minimum = float_of_half(rounded.minimum);
    for (int group = 0; group < 8; group += 2) {
        Int levels[64];
        for (int i = 0; i < 2; ++i) {
            const int own = group + i;
            group_levels<32, Top>(x + 32 * own, fits.of[own], d * to_floats(rounded.scales[own]),
                                  minimum * to_floats(rounded.minima[own]), levels + 32 * i);
        }
        for (int i = 0; i < 8; ++i) {
            const Int *low = levels + 4 * i, *high = low + 32;
            const Int lows = pack_bytes(low[0], low[1], low[2], low[3]);
            const Int highs = pack_bytes(high[0], high[1], high[2], high[3]);
            words[4 + fifths + 4 * group + i] = (lows & 0x0F0F0F0F) | (highs & 0x0F0F0F0F) << 4;
            if constexpr (fifths != 0) {
                const Int pair = (shift_right(lows, 4) & 0x01010101) |
                                 (shift_right(highs, 3) & 0x02020202);
                words[4 + i] |= pair << group;
            }
        }
    }
    store_words<4 + fifths + 32, BlockBytes>(words, bytes);
    return fits.strange;
}

}  // namespace
