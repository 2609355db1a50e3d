// IQ1_M: 32 points of a grid of 2048 in eight dimensions, each with the upper three bits of its
// index and the sign of its shift in a nibble, and for every two a scale of 3 bits; the scale of
// those is spread over the upper nibbles of the four words of scales.
#pragma once
#include "../searches/split_block.hpp"
#include "iq1.hpp"

namespace {

struct IQ1_M {
    static constexpr uint32_t id = 29, block_size = 256, block_bytes = 56;
    static constexpr const char *name = "IQ1_M";

    struct BLOCK Block {
        uint8_t points[32];
        uint8_t nibbles[16];
        uint16_t scales[4];

        uint16_t d() const {
            return static_cast<uint16_t>(scales[0] >> 12 | (scales[1] >> 12) << 4 |
                                         (scales[2] >> 12) << 8 | (scales[3] >> 12) << 12);
        }
        int nibble(int i) const { return nibbles[i / 2] >> i % 2 * 4; }
        uint64_t point(int i) const { return iq1_grid.points[points[i] | (nibble(i) & 7) << 8]; }
        bool down(int i) const { return nibble(i) & 8; }
        float scale(int i, float d) const {
            return d * (2 * (scales[i / 8] >> i / 2 % 4 * 3 & 7) + 1);
        }
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");

    static constexpr GridName grid = grid_iq1;
    static constexpr Weights weights = weights_taken;

    struct Rule {
        static constexpr int size = 16;
        using Sums = ApartSums<size>;
        static constexpr float least = 1e-7f, spread = 2.0f;
        static constexpr bool weighs_by_mean = false;
        static bool lowered(int choice, int group) { return choice >> (1 - group) & 1; }
    };

    using Fit = SplitBlockFit<Rule>;

    static Block pack(const float *x, const Fit::Content &fit) {
        Block block = {};
        for (int i = 0; i < 32; ++i) {
            block.points[i] = static_cast<uint8_t>(fit.points[i]);
            block.nibbles[i / 2] |= static_cast<uint8_t>((fit.points[i] >> 8) << i % 2 * 4);
        }
        if (fit.highest_scale != 0.0f) {
            const uint16_t d = half_of_float(store_scales(x, fit, block) * 1.1125f);  // fudged
            for (int i = 0; i < 4; ++i) {
                block.scales[i] |= static_cast<uint16_t>((d >> 4 * i & 15) << 12);
            }
        }
        return block;
    }

    // Stores the levels of scales and the lowered groups; returns the scale that then fits best.
    static float store_scales(const float *x, const SplitBlock<Rule::size> &fit, Block &block) {
        const float d = fit.highest_scale / 15.0f, inverse = 1.0f / d;
        float product = 0.0f, square = 0.0f;
        for (int i = 0; i < 16; ++i) {
            const int level = fit.scale_level(i, inverse);
            block.scales[i / 4] |= static_cast<uint16_t>(level << i % 4 * 3);
            for (int j = 0; j < 16; ++j) {
                const int index = 16 * i + j;
                const bool lowered = Rule::lowered(fit.choices[i], j / 8);
                const int code = iq1_codes[fit.points[index / 8]] >> index % 8 * 2 & 3;
                const float value = values_of(lowered)[code] * static_cast<float>(2 * level + 1);
                product += fit.weights[index] * value * x[index];
                square += fit.weights[index] * value * value;
            }
            if (Rule::lowered(fit.choices[i], 0)) block.nibbles[i] |= 0x08;
            if (Rule::lowered(fit.choices[i], 1)) block.nibbles[i] |= 0x80;
        }
        return square > 0.0f ? product / square : d;
    }

    template <class Store>
    static void decode_lanes(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const float d = scalar_of_half(block.d());
        UNROLL
        for (int i = 0; i < 32; i += 2) {
            const U64x2 down = {block.down(i) ? ~uint64_t{0} : 0,
                                block.down(i + 1) ? ~uint64_t{0} : 0};
            put_shifted_points<Store>(x + 8 * i, block.point(i), block.point(i + 1), down,
                                      block.scale(i, d));
        }
    }

    static bool is_valid(const uint8_t *bytes) { return is_finite_half(view<Block>(bytes).d()); }
};

}  // namespace
