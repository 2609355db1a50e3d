// IQ2_S: 32 points of a grid of 1024 in eight dimensions, their upper two bits separate, eight
// signs each, and for every two of them a scale of 4 bits; the scale of those.
#pragma once
#include "../searches/grid_block.hpp"
#include "grids.hpp"

namespace {

struct IQ2_S {
    static constexpr uint32_t id = 22, block_size = 256, block_bytes = 82;
    static constexpr const char *name = "IQ2_S";

    struct BLOCK Block {
        uint16_t d;
        uint8_t points[32];
        uint8_t signs[32];
        uint8_t uppers[8];
        uint8_t scales[8];

        uint64_t point(int i) const {
            return iq2_s_grid.points[points[i] | (uppers[i / 4] << (8 - i % 4 * 2) & 0x300)];
        }
        uint64_t sign_bytes(int i) const { return all_sign_bytes.of[signs[i]]; }
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");

    static constexpr GridName grid = grid_iq2_s;
    static constexpr Weights weights = weights_taken;

    struct Rule : StartsAtHighest<GridShape<16, 8, 3>> {
        static constexpr int candidates = 19;
        static constexpr float step = 0.1f, spread = 2.0f, least = 1e-8f;
        static constexpr bool even_signs = false, weighs_by_mean = true;
        static constexpr Again again = Again::where_off_grid;

        static float plain_weight(float x_squared, float mean_square) {
            return 0.25f * mean_square + x_squared;
        }
    };

    using Fit = GridBlockFit<Rule>;

    static Block pack(const float *, const Fit::Content &fit) {
        Block block = {};
        for (int i = 0; i < 32; ++i) {
            block.points[i] = static_cast<uint8_t>(fit.points[i]);
            block.uppers[i / 4] |= static_cast<uint8_t>((fit.points[i] >> 8) << i % 4 * 2);
            block.signs[i] = fit.signs[i];
        }
        if (fit.highest_scale != 0.0f) {
            const float d = fit.highest_scale / 31.0f;
            block.d = half_of_float(d * 0.9875f);  // ggml's fudge factor
            fit.store_scale_levels(1.0f / d, block.scales);
        }
        return block;
    }

    template <class Store>
    static void decode_lanes(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        put_nibble_scaled<Store>(x, block, NibbleScales(block.scales, scalar_of_half(block.d)));
    }
};

}  // namespace
