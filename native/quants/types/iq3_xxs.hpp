// IQ3_XXS: 64 points of a grid of 256 in four dimensions, seven stored signs for every two, and
// for every eight a scale of 4 bits; the scale of those.
#pragma once
#include "../searches/grid_block.hpp"
#include "grids.hpp"

namespace {

struct IQ3_XXS {
    static constexpr uint32_t id = 18, block_size = 256, block_bytes = 98;
    static constexpr const char *name = "IQ3_XXS";

    struct BLOCK Block {
        uint16_t d;
        uint8_t points[64];
        uint32_t signs_and_scales[8];

        uint32_t point(int i) const { return iq3_xxs_grid.points[points[i]]; }
        uint64_t sign_bytes(int i) const {
            return even_sign_bytes.of[signs_and_scales[i / 4] >> 7 * (i % 4) & 127];
        }
        float scale(int i, float d) const {
            return d * (0.5f + (signs_and_scales[i / 4] >> 28)) * 0.5f;
        }
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");

    static constexpr GridName grid = grid_iq3_xxs;
    static constexpr Weights weights = weights_taken;

    struct Rule : StartsAtHighest<GridShape<32, 4, 8>> {
        static constexpr int candidates = 31;
        static constexpr float step = 0.2f, spread = 2.0f, least = 1e-8f;
        static constexpr bool even_signs = true, weighs_by_mean = false;
        static constexpr Again again = Again::where_off_grid;
    };

    using Fit = GridBlockFit<Rule>;

    static Block pack(const float *, const Fit::Content &fit) {
        Block block = {};
        if (fit.highest_scale != 0.0f) {
            const float d = fit.highest_scale / 31.0f;
            block.d = half_of_float(d * 1.0125f);  // ggml's fudge factor
            for (int i = 0; i < 64; ++i) block.points[i] = static_cast<uint8_t>(fit.points[i]);
            for (int i = 0; i < 8; ++i) {
                block.signs_and_scales[i] = fit.packed_signs(i) | fit.scale_level(i, 1.0f / d)
                                                                        << 28;
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
            const int j = 2 * i;
            const U32x4 four = {block.point(j), block.point(j + 1), block.point(j + 2),
                                block.point(j + 3)};
            put_points<Store>(x + 8 * i, (U64x2)four,
                              U64x2{block.sign_bytes(i), block.sign_bytes(i + 1)},
                              block.scale(i, d));
        }
    }
};

}  // namespace
