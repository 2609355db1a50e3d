// How Q4_K and Q5_K encode: eight groups of 32 elements.
#pragma once
#include "affine_groups.hpp"

namespace {

template <int Top, int Candidates>
using GroupRule = AffineRule<32, Top, Candidates>;

// Without importance, weights are the magnitude of an element plus that of its group.
struct WeighsGroup {
    static constexpr float square_share = 2.0f;

    template <class Lane>
    static void weigh(const Lane *x, Lane *weights) {
        Lane sum{};
        for (int i = 0; i < 32; ++i) sum = sum + x[i] * x[i];
        const Lane size = square_root(sum / 32.0f);
        for (int i = 0; i < 32; ++i) weights[i] = size + absolute(x[i]);
    }
};

// ggml does so, except for a weighted Q4_K.
template <class Lane>
void clamp_to_63(GroupScales<Lane, 8> &rounded) {
    for (auto &level : rounded.scales) level = minimum(level, all_ints<IntOf<Lane>>(63));
    for (auto &level : rounded.minima) level = minimum(level, all_ints<IntOf<Lane>>(63));
}

// Packs the levels of the groups' scales as get_scale_min_k4 reads them, three words of four
// bytes, and reads them back: a level above 63, which a weighted Q4_K may have, loses bits.
template <class Lane>
void pack_scales(GroupScales<Lane, 8> &rounded, IntOf<Lane> *words) {
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

// Packs a block into words: two halves, three words of scales, for Q5_K eight of fifth bits, and
// 32 of pairs. `levels_of(group, levels)` gives the levels of a group under the scales as packed.
template <int Top, int BlockBytes, class Lane, class LevelsOf>
KERNEL_INLINE void pack_superblock(LevelsOf levels_of, GroupScales<Lane, 8> &rounded,
                                   uint8_t *bytes) {
    using Int = IntOf<Lane>;
    constexpr int fifths = Top > 15 ? 8 : 0;
    Int words[4 + fifths + 32] = {rounded.d | rounded.minimum << 16};
    pack_scales<Lane>(rounded, words + 1);
    for (int group = 0; group < 8; group += 2) {
        Int levels[64];
        levels_of(group, levels);
        levels_of(group + 1, levels + 32);
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
}

template <int Top, int BlockBytes, class Rule, class Lane, class Importance>
MaskOf<Lane> encode_superblock(const Rule &rule, const Lane *x, const Importance &importance,
                               uint8_t *bytes) {
    const GroupFits<Lane, 8> fits = fit_groups<WeighsGroup>(rule, x, importance);
    GroupScales<Lane, 8> rounded = round_scales<is_weighted<Importance>, 63>(fits);
    if constexpr (Top > 15 || !is_weighted<Importance>) clamp_to_63(rounded);
    const Lane d = float_of_half(rounded.d), minimum = float_of_half(rounded.minimum);
    const auto levels_of = [&](int group, IntOf<Lane> *levels) {
        group_levels<32, Top>(x + 32 * group, fits.of[group], d * to_floats(rounded.scales[group]),
                              minimum * to_floats(rounded.minima[group]), levels);
    };
    pack_superblock<Top, BlockBytes, Lane>(levels_of, rounded, bytes);
    return fits.strange;
}

}  // namespace
