// IQ2_XS: 32 points of a grid of 512 in eight dimensions, seven stored signs each, and for every
// two of them a scale of 4 bits; the scale of those.
#pragma once
#include "../searches/grid_block.hpp"
#include "grids.hpp"

namespace {

struct IQ2_XS {
    static constexpr uint32_t id = 17, block_size = 256, block_bytes = 74;
    static constexpr const char *name = "IQ2_XS";

    struct BLOCK Block {
        uint16_t d;
        uint16_t points_and_signs[32];
        uint8_t scales[8];

        uint64_t point(int i) const { return iq2_xs_grid.points[points_and_signs[i] & 511]; }
        uint64_t sign_bytes(int i) const { return even_sign_bytes.of[points_and_signs[i] >> 9]; }
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");

    static constexpr GridName grid = grid_iq2_xs;
    static constexpr Weights weights = weights_required;

    struct Rule : StartsAtHighest<GridShape<16, 8, 3>> {
        static constexpr int candidates = 19;
        static constexpr float step = 0.1f, spread = 1.0f, least = 1e-15f;
        static constexpr bool even_signs = true, weighs_by_mean = false;
        static constexpr Again again = Again::where_off_grid;
    };

    using Fit = GridBlockFit<Rule>;

    static Block pack(const float *, const Fit::Content &fit) {
        Block block = {};
        if (fit.highest_scale != 0.0f) {
            const float d = fit.highest_scale / 31.0f;
            block.d = half_of_float(d);
            for (int i = 0; i < 32; ++i) {
                block.points_and_signs[i] =
                    static_cast<uint16_t>(fit.points[i] | fit.signs[i] << 9);
            }
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
