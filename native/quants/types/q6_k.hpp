// Q6_K: 16 groups of 16 levels of 6 bits around 32, the upper two bits separate, each group with a
// scale of 8 bits, and the scale of those.
#pragma once
#include "../codec.hpp"
#include "quarters.hpp"
#include "symmetric_groups.hpp"

namespace {

struct Q6_K : EncodesAnyLane<Q6_K> {
    static constexpr uint32_t id = 14, block_size = 256, block_bytes = 210;
    static constexpr const char *name = "Q6_K";
    static constexpr Weights weights = weights_taken;

    struct BLOCK Block {
        uint8_t pairs[128];  // of each half: elements 64 apart share a byte
        uint8_t uppers[64];  // of each half: elements 32 apart share a byte
        int8_t scales[16];
        uint16_t d;
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");

    template <class Lane, class Importance>
    static MaskOf<Lane> encode(const Lane *x, const Importance &importance, uint8_t *bytes) {
        using Int = IntOf<Lane>;
        SymmetricFit<Lane> fits[16];
        Lane scales[16];
        for (int group = 0; group < 16; ++group) {
            fits[group] = fit_group(x + 16 * group, 16 * group, importance);
            scales[group] = fits[group].scale;
        }
        const Lane extreme = extreme_of<16>(scales), inverse = -128.0f / extreme;
        const auto empty = less(absolute(extreme), broadcast<Lane>(least_group));
        const Int d = half_of_float(1.0f / inverse);
        Int rounded[16];
        for (int group = 0; group < 16; ++group) {
            const Int level = nearest_int(inverse * scales[group]);
            rounded[group] = low_byte(minimum(level, broadcast_int<Int>(127)));
        }
        const auto levels_of = [&](int group, Int *levels) {
            const Lane scale = float_of_half(d) * to_floats(rounded[group]);
            symmetric_levels<32>(x + 16 * group, scale, fits[group], levels);
        };
        pack<Lane>(levels_of, rounded, d, empty, bytes);
        return no_lane<Lane>();
    }

    // Packs a block, zeros in lanes that are `empty`; `levels_of(group, levels)` gives the levels
    // of a group.
    template <class Lane, class LevelsOf>
    static KERNEL_INLINE void pack(LevelsOf levels_of, const IntOf<Lane> *rounded, IntOf<Lane> d,
                                   MaskOf<Lane> empty, uint8_t *bytes) {
        using Int = IntOf<Lane>;
        Int words[52];
        for (int half = 0; half < 2; ++half) {
            Int levels[128];
            for (int group = 0; group < 8; ++group) {
                levels_of(8 * half + group, levels + 16 * group);
            }
            pack_half(levels, words + 16 * half, words + 32 + 8 * half);
        }
        for (int i = 0; i < 4; ++i) {
            const Int *four = rounded + 4 * i;
            words[48 + i] = pack_bytes(four[0], four[1], four[2], four[3]);
        }
        for (auto &word : words) word = select(empty, Int{}, word);
        store_words<52, block_bytes>(words, bytes);
        scatter_halves<block_bytes>(select(empty, Int{}, d), bytes + 208);
    }

    template <class Store>
    static void decode_lanes(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const float d = scalar_of_half(block.d);
        UNROLL
        for (int group = 0; group < 16; ++group) {
            const U8x16 pairs = load_u8x16(block.pairs + group / 8 * 64 + group % 4 * 16);
            const U8x16 uppers = load_u8x16(block.uppers + group / 8 * 32 + group % 2 * 16);
            const U8x16 low = pairs >> group / 4 % 2 * 4 & 15;
            const U8x16 levels = low | (uppers >> group / 2 % 4 * 2 & 3) << 4;
            put_levels<Store>(x + 16 * group, (I8x16)levels - 32, d * block.scales[group]);
        }
    }

private:
    // Importance is the weight; without it, squares are.
    template <class Lane, class Importance>
    static SymmetricFit<Lane> fit_group(const Lane *x, int first, const Importance &importance) {
        Lane weights[16];
        if constexpr (is_weighted<Importance>) {
            importance.template load<16>(first, weights);
        } else {
            for (int i = 0; i < 16; ++i) weights[i] = x[i] * x[i];
        }
        return fit_symmetric<16, 32>(x, weights);
    }

    // Elements 64 apart share a byte of `pairs`, those 32 apart one of `uppers`.
    template <class Int>
    static void pack_half(const Int *levels, Int *pairs, Int *uppers) {
        for (int i = 0; i < 8; ++i) {
            const Quarters<Int> quarters(levels, i);
            const Int *of = quarters.of;
            pairs[i] = (of[0] & 0x0F0F0F0F) | (of[2] & 0x0F0F0F0F) << 4;
            pairs[i + 8] = (of[1] & 0x0F0F0F0F) | (of[3] & 0x0F0F0F0F) << 4;
            uppers[i] = quarters.two_bits(4);
        }
    }
};

}  // namespace
