// IQ3_S: 64 points of a grid of 512 in four dimensions, their ninth bits separate, a sign for each
// element, and for every eight points a scale of 4 bits; the scale of those.
#pragma once
#include "../searches/grid_block.hpp"
#include "grids.hpp"

namespace {

struct IQ3_S {
    static constexpr uint32_t id = 21, block_size = 256, block_bytes = 110;
    static constexpr const char *name = "IQ3_S";

    struct BLOCK Block {
        uint16_t d;
        uint8_t points[64];
        uint8_t ninths[8];
        uint8_t signs[32];
        uint8_t scales[4];

        uint64_t sign_bytes(int i) const { return all_sign_bytes.of[signs[i]]; }
        float scale(int i, float d) const {
            return d * (1 + 2 * (scales[i / 8] >> i / 4 % 2 * 4 & 15));
        }
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");

    static constexpr GridName grid = grid_iq3_s;
    static constexpr Weights weights = weights_taken;

    struct Rule : StartsAtHighest<GridShape<32, 4, 8>> {
        static constexpr int candidates = 19;
        static constexpr float step = 0.2f, spread = 2.0f, least = 0x1p-149f;
        static constexpr bool even_signs = false, weighs_by_mean = false;
        static constexpr Again again = Again::all_if_any_off_grid;
    };

    using Fit = GridBlockFit<Rule>;

    static Block pack(const float *, const Fit::Content &fit) {
        Block block = {};
        int place = 0;
        for (int i = 0; i < 8; ++i) {
            if (fit.empty[i]) continue;  // ggml then stores the following ones one place earlier
            for (int j = 0; j < 8; ++j) {
                const int point = fit.points[8 * i + j];
                block.points[8 * place + j] = static_cast<uint8_t>(point);
                block.ninths[i] |= static_cast<uint8_t>((point >> 8) << j);
            }
            memcpy(block.signs + 4 * place++, fit.signs + 4 * i, 4);
        }
        if (fit.highest_scale != 0.0f) {
            const float d = fit.highest_scale / 31.0f;
            block.d = half_of_float(d * 1.033f);  // ggml's fudge factor
            fit.store_scale_levels(1.0f / d, block.scales);
        }
        return block;
    }

    template <class Store>
    static void decode_lanes(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const float d = scalar_of_half(block.d);
        uint16_t numbers[64];
        UNROLL
        for (int i = 0; i < 64; i += 16) {
            add_ninths(block.points + i, block.ninths + i / 8, numbers + i);
        }
        const auto point = [&numbers](int i) { return iq3_s_grid.points[numbers[i]]; };
        UNROLL
        for (int i = 0; i < 32; i += 2) {
            const int j = 2 * i;
            const U32x4 four = {point(j), point(j + 1), point(j + 2), point(j + 3)};
            put_points<Store>(x + 8 * i, (U64x2)four,
                              U64x2{block.sign_bytes(i), block.sign_bytes(i + 1)},
                              block.scale(i, d));
        }
    }
};

}  // namespace
