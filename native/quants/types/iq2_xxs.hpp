// IQ2_XXS: 32 points of a grid of 256 in eight dimensions, seven stored signs each, and for every
// four of them a scale of 4 bits; the scale of those.
#pragma once
#include "../searches/grid_block.hpp"
#include "../searches/positive.hpp"
#include "grids.hpp"

namespace {

struct IQ2_XXS {
    static constexpr uint32_t id = 16, block_size = 256, block_bytes = 66;
    static constexpr const char *name = "IQ2_XXS";

    struct BLOCK Group {
        uint8_t points[4];
        uint32_t signs_and_scale;

        uint64_t point(int i) const { return iq2_xxs_grid.points[points[i]]; }
        uint64_t sign_bytes(int i) const {
            return even_sign_bytes.of[signs_and_scale >> 7 * i & 127];
        }
        float scale(float d) const { return d * (0.5f + (signs_and_scale >> 28)) * 0.25f; }
    };
    struct BLOCK Block {
        uint16_t d;
        Group groups[8];
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");

    static constexpr GridName grid = grid_iq2_xxs;
    static constexpr Weights weights = weights_required;

    struct Rule {
        using Shape = GridShape<32, 8, 3>;
        static constexpr int candidates = 13;
        static constexpr float step = 0.1f, spread = 1.0f, least = 1e-15f;
        static constexpr bool even_signs = true, weighs_by_mean = false;
        static constexpr Again again = Again::all;

        static void start(const GridPart<Shape> (&parts)[8], const float (&)[8], float (&ranges)[8],
                          float (&scales)[8]) {
            if constexpr (portable) {
                for (int i = 0; i < 8; ++i) {
                    int32_t levels[32];
                    PositiveSearch<32, 4, float> search(parts[i].x, parts[i].weights);
                    scales[i] = search.run(levels);
                }
            } else {
                for (int first = 0; first < 8; first += lanes) start_lanes(parts, first, scales);
            }
            for (int i = 0; i < 8; ++i) ranges[i] = scales[i] * 3.0f;
        }

        // Starts a part per lane; with more lanes than parts, some lanes repeat one.
        static void start_lanes(const GridPart<Shape> (&parts)[8], int first, float (&scales)[8]) {
            Floats x[32], weights[32];
            for (int i = 0; i < 32; i += lanes) {
                for (int j = 0; j < lanes; ++j) {
                    x[i + j] = load(parts[(first + j) % 8].x + i);
                    weights[i + j] = load(parts[(first + j) % 8].weights + i);
                }
                transpose(reinterpret_cast<Floats(&)[lanes]>(x[i]));
                transpose(reinterpret_cast<Floats(&)[lanes]>(weights[i]));
            }
            Ints levels[32];
            const Floats best = PositiveSearch<32, 4, Floats>(x, weights).run(levels);
            for (int i = 0; i < lanes && first + i < 8; ++i) scales[first + i] = best[i];
        }
    };

    using Fit = GridBlockFit<Rule>;

    static Block pack(const float *, const Fit::Content &fit) {
        Block block = {};
        if (fit.highest_scale != 0.0f) {
            const float d = fit.highest_scale / 31.0f;
            block.d = half_of_float(d);
            for (int i = 0; i < 8; ++i) {
                for (int j = 0; j < 4; ++j) {
                    block.groups[i].points[j] = static_cast<uint8_t>(fit.points[4 * i + j]);
                }
                block.groups[i].signs_and_scale =
                    fit.packed_signs(i) | fit.scale_level(i, 1.0f / d) << 28;
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
            const Group &group = block.groups[i / 4];
            const int a = i % 4, b = a + 1;
            put_points<Store>(x + 8 * i, U64x2{group.point(a), group.point(b)},
                              U64x2{group.sign_bytes(a), group.sign_bytes(b)}, group.scale(d));
        }
    }
};

}  // namespace
