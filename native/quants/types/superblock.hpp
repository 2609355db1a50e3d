// Shared by Q4_K and Q5_K: eight groups of 32 elements with a scale and a minimum of 6 bits.
#pragma once
#include "../codec.hpp"
#include "affine_groups.hpp"

namespace {

struct ScaleMinimum {
    uint8_t scale, minimum;
};

// get_scale_min_k4: the last four groups keep their high bits in the bytes of the first four.
KERNEL_INLINE ScaleMinimum scale_minimum(const uint8_t (&packed)[12], int group) {
    const uint8_t *part = packed + group % 4;
    if (group < 4) return {uint8_t(part[0] & 63), uint8_t(part[4] & 63)};
    return {uint8_t((part[8] & 15) | part[0] >> 6 << 4), uint8_t(part[8] >> 4 | part[4] >> 6 << 4)};
}

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
    for (auto &level : rounded.scales) level = minimum(level, broadcast_int<IntOf<Lane>>(63));
    for (auto &level : rounded.minima) level = minimum(level, broadcast_int<IntOf<Lane>>(63));
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
                const Int pair =
                    (shift_right(lows, 4) & 0x01010101) | (shift_right(highs, 3) & 0x02020202);
                words[4 + i] |= pair << group;
            }
        }
    }
    store_words<4 + fifths + 32, BlockBytes>(words, bytes);
}

// The codec of both; `Type` has the highest level, `top`, and its two rules.
template <class Type>
struct Superblock : EncodesAnyLane<Type> {
    static constexpr Weights weights = weights_taken;

    template <class Lane, class Importance>
    static MaskOf<Lane> encode(const Lane *x, const Importance &importance, uint8_t *bytes) {
        if constexpr (is_weighted<Importance>) {
            return encode_by(Type::weighted_rule, x, importance, bytes);
        } else {
            return encode_by(Type::plain_rule, x, importance, bytes);
        }
    }

    template <class Store>
    static void decode_lanes(const uint8_t *bytes, float *x) {
        const auto &block = view<typename Type::Block>(bytes);
        const float d = scalar_of_half(block.d), minimum = scalar_of_half(block.minimum);
        UNROLL
        for (int group = 0; group < 8; ++group) {
            const ScaleMinimum own = scale_minimum(block.scales, group);
            const float scale = d * own.scale, offset = -(minimum * own.minimum);
            UNROLL
            for (int half = 0; half < 2; ++half) {
                const U8x16 pairs = load_u8x16(block.pairs + group / 2 * 32 + half * 16);
                U8x16 levels = pairs >> group % 2 * 4 & 15;
                if constexpr (Type::top > 15) {
                    levels |= (load_u8x16(block.fifths + half * 16) >> group & 1) << 4;
                }
                put_levels<Store>(x + group * 32 + half * 16, (I8x16)levels, scale, offset);
            }
        }
    }

private:
    template <class Rule, class Lane, class Importance>
    static MaskOf<Lane> encode_by(const Rule &rule, const Lane *x, const Importance &importance,
                                  uint8_t *bytes) {
        constexpr int top = Type::top;
        const GroupFits<Lane, 8> fits = fit_groups<WeighsGroup>(rule, x, importance);
        GroupScales<Lane, 8> rounded = round_scales<is_weighted<Importance>, 63>(fits);
        if constexpr (top > 15 || !is_weighted<Importance>) clamp_to_63(rounded);
        const Lane d = float_of_half(rounded.d), minimum = float_of_half(rounded.minimum);
        const auto levels_of = [&](int group, IntOf<Lane> *levels) {
            group_levels<32, top>(x + 32 * group, fits.of[group],
                                  d * to_floats(rounded.scales[group]),
                                  minimum * to_floats(rounded.minima[group]), levels);
        };
        pack_superblock<top, Type::block_bytes, Lane>(levels_of, rounded, bytes);
        return fits.needs_fallback;
    }
};

}  // namespace
