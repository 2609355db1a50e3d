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
        float scale(int i, float d) const {
            return d * (0.5f + (scales[i / 4] >> i / 2 % 2 * 4 & 15)) * 0.25f;
        }
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");

    static constexpr GridName grid = grid_iq2_xs;
    static constexpr Weights weights = weights_required;

    struct Rule {
        using Shape = GridShape<16, 8, 3>;
        static constexpr int candidates = 19;
        static constexpr float step = 0.1f, spread = 1.0f, least = 1e-15f;
        static constexpr bool even_signs = true, weighs_by_mean = false;
        static constexpr Again again = Again::where_off_grid;

        static float plain_weight(float, float) { return 0.0f; }  // never called

        static void start(const GridPart<Shape> (&)[16], const float (&highest)[16],
                          float (&ranges)[16], float (&scales)[16]) {
            start_at_highest<Shape>(highest, ranges, scales);
        }
    };

    static int64_t encode_block(const float *x, const float *importance, float mean_square,
                                const Neighbours &neighbours, uint8_t *bytes) {
        GridBlock<Rule::Shape> found;
        const int64_t wrong = GridBlockFit<Rule>(x, importance, neighbours).run(mean_square, found);
        Block block = {};
        if (found.highest_scale != 0.0f) {
            const float d = found.highest_scale / 31.0f;
            block.d = half_of_float(d);
            for (int i = 0; i < 32; ++i) {
                block.points_and_signs[i] =
                    static_cast<uint16_t>(found.points[i] | found.signs[i] << 9);
            }
            found.store_scale_levels(1.0f / d, block.scales);
        }
        write(bytes, block);
        return wrong;
    }

    static void decode_block(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const float d = float_of_half(block.d);
        for (int i = 0; i < 32; ++i) {
            put_point(x + 8 * i, block.point(i), block.sign_bytes(i), block.scale(i, d));
        }
    }

    template <class Store>
    static void decode_lanes(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const NibbleScales scales(block.scales, scalar_of_half(block.d));
        UNROLL
        for (int i = 0; i < 32; i += 2) {
            put_points<Store>(x + 8 * i, Pair{block.point(i), block.point(i + 1)},
                              Pair{block.sign_bytes(i), block.sign_bytes(i + 1)},
                              scales.of_pair(i / 2));
        }
    }

    static bool is_valid(const uint8_t *bytes) { return is_finite_half(view<Block>(bytes).d); }
};

}  // namespace
