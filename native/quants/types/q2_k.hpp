// Q2_K: 16 groups of 16 levels of 2 bits, each group with a scale and a minimum of 4 bits, and
// the scales of those.
#pragma once
#include "../codec.hpp"
#include "affine_groups.hpp"
#include "quarters.hpp"

namespace {

// Without importance, an element's magnitude is its weight.
struct WeighsSize {
    static constexpr float square_share = 1.0f;

    template <class Lane>
    static void weigh(const Lane *x, Lane *weights) {
        for (int i = 0; i < 16; ++i) weights[i] = absolute(x[i]);
    }
};

struct Q2_K : EncodesAnyLane<Q2_K> {
    static constexpr uint32_t id = 10, block_size = 256, block_bytes = 84;
    static constexpr const char *name = "Q2_K";
    static constexpr Weights weights = weights_taken;
    static constexpr AffineRule<16, 3, 16, Error::absolute> plain_rule{-0.5f, 0.1f};
    static constexpr AffineRule<16, 3, 37> weighted_rule{-0.9f, 0.05f};

    struct BLOCK Block {
        uint8_t scales[16];  // low nibble: scale; high: minimum
        uint8_t fours[64];   // elements 32 apart share a byte
        uint16_t d, minimum;
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");

    template <class Lane, class Importance>
    static MaskOf<Lane> encode(const Lane *x, const Importance &importance, uint8_t *block) {
        if constexpr (is_weighted<Importance>) {
            return encode_by(weighted_rule, x, importance, block);
        } else {
            return encode_by(plain_rule, x, importance, block);
        }
    }

    template <class Rule, class Lane, class Importance>
    static MaskOf<Lane> encode_by(const Rule &rule, const Lane *x, const Importance &importance,
                                  uint8_t *bytes) {
        using Int = IntOf<Lane>;
        const GroupFits<Lane, 16> fits = fit_groups<WeighsSize>(rule, x, importance);
        const auto rounded = round_scales<is_weighted<Importance>, 15>(fits);
        const Lane d = float_of_half(rounded.d), minimum = float_of_half(rounded.minimum);
        Int scales[16];
        for (int i = 0; i < 16; ++i) {
            // A negative scale, which plain fits may have, fills the minimum's bits too.
            scales[i] = (rounded.scales[i] | rounded.minima[i] << 4) & 255;
        }
        const auto levels_of = [&](int group, Int *levels) {
            group_levels<16, 3>(x + 16 * group, fits.of[group], d * to_floats(scales[group] & 15),
                                minimum * to_floats(scales[group] >> 4), levels);
        };
        pack<Lane>(levels_of, scales, rounded.d | rounded.minimum << 16, bytes);
        return fits.needs_fallback;
    }

    // Packs a block; `scales` are the bytes of the groups, `halves` the words of their scales, and
    // `levels_of(group, levels)` gives the levels of a group.
    template <class Lane, class LevelsOf>
    static KERNEL_INLINE void pack(LevelsOf levels_of, const IntOf<Lane> *scales,
                                   IntOf<Lane> halves, uint8_t *bytes) {
        using Int = IntOf<Lane>;
        Int words[21];
        for (int half = 0; half < 2; ++half) {
            Int levels[128];
            for (int group = 0; group < 8; ++group) {
                levels_of(8 * half + group, levels + 16 * group);
            }
            for (int i = 0; i < 8; ++i) {
                words[4 + 8 * half + i] = Quarters<Int>(levels, i).two_bits(0);
            }
        }
        for (int i = 0; i < 4; ++i) {
            const Int *four = scales + 4 * i;
            words[i] = pack_bytes(four[0], four[1], four[2], four[3]);
        }
        words[20] = halves;
        store_words<21, block_bytes>(words, bytes);
    }

    template <class Store>
    static void decode_lanes(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const float d = scalar_of_half(block.d), minimum = scalar_of_half(block.minimum);
        UNROLL
        for (int group = 0; group < 16; ++group) {
            const U8x16 fours = load_u8x16(block.fours + group / 8 * 32 + group % 2 * 16);
            const U8x16 levels = fours >> group / 2 % 4 * 2 & 3;
            const uint8_t scale = block.scales[group];
            put_levels<Store>(x + 16 * group, (I8x16)levels, d * (scale & 15),
                              -(minimum * (scale >> 4)));
        }
    }
};

}  // namespace
