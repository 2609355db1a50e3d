// IQ1_S: 32 points of a grid of 2048 in eight dimensions, their upper three bits separate, and for
// every four a scale of 3 bits and the sign of a shift; the scale of those.
#pragma once
#include "../searches/split_block.hpp"
#include "iq1.hpp"

namespace {

struct IQ1_S {
    static constexpr uint32_t id = 19, block_size = 256, block_bytes = 50;
    static constexpr const char *name = "IQ1_S";

    struct BLOCK Block {
        uint16_t d;
        uint8_t points[32];
        uint16_t groups[8];  // four times 3 upper bits, the scale, the sign

        uint64_t point(int i) const {
            return iq1_grid.points[points[i] | (groups[i / 4] >> i % 4 * 3 & 7) << 8];
        }
        bool down(int i) const { return groups[i / 4] >> 15; }
        float scale(int i, float d) const { return d * (2 * (groups[i / 4] >> 12 & 7) + 1); }
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");

    static constexpr GridName grid = grid_iq1;
    static constexpr Weights weights = weights_required;

    struct Rule {
        static constexpr int size = 32;
        using Sums = TogetherSums<size>;
        static constexpr float least = 1e-12f, spread = 2.0f;
        static constexpr bool weighs_by_mean = false;
        static bool lowered(int choice, int) { return choice == 1; }
    };

    using Fit = SplitBlockFit<Rule>;

    static Block pack(const float *, const Fit::Content &fit) {
        Block block = {};
        for (int i = 0; i < 32; ++i) {
            block.points[i] = static_cast<uint8_t>(fit.points[i]);
            block.groups[i / 4] |= static_cast<uint16_t>((fit.points[i] >> 8) << i % 4 * 3);
        }
        if (fit.highest_scale != 0.0f) {
            const float d = fit.highest_scale / 15.0f;
            block.d = half_of_float(d * 1.125f);  // ggml's fudge factor
            for (int i = 0; i < 8; ++i) {
                const int level = fit.scale_level(i, 1.0f / d) | fit.choices[i] << 3;
                block.groups[i] |= static_cast<uint16_t>(level << 12);
            }
        }
        return block;
    }

    template <class Store>
    static void decode_lanes(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const float d = scalar_of_half(block.d);
        UNROLL
        for (int i = 0; i < 32; i += 2) {
            const uint64_t down = block.down(i) ? ~uint64_t{0} : 0;
            put_shifted_points<Store>(x + 8 * i, block.point(i), block.point(i + 1),
                                      U64x2{down, down}, block.scale(i, d));
        }
    }
};

}  // namespace
