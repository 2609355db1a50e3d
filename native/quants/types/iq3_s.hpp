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

        uint32_t point(int i) const {
            return iq3_s_grid.points[points[i] | (ninths[i / 8] << (8 - i % 8) & 0x100)];
        }
        // Two points make eight elements, as in IQ2.
        uint64_t two_points(int i) const { return point(i) | uint64_t{point(i + 1)} << 32; }
        uint64_t sign_bytes(int i) const { return all_sign_bytes.of[signs[i]]; }
        float scale(int i, float d) const {
            return d * (1 + 2 * (scales[i / 8] >> i / 4 % 2 * 4 & 15));
        }
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");

    static constexpr GridName grid = grid_iq3_s;
    static constexpr Weights weights = weights_taken;

    struct Rule {
        using Shape = GridShape<32, 4, 8>;
        static constexpr int candidates = 19;
        static constexpr float step = 0.2f, spread = 2.0f, least = 0x1p-149f;
        static constexpr bool even_signs = false, weighs_by_mean = false;
        static constexpr Again again = Again::all_if_any_off_grid;

        static float plain_weight(float x_squared, float) { return x_squared; }

        static void start(const GridPart<Shape> (&)[8], const float (&highest)[8],
                          float (&ranges)[8], float (&scales)[8]) {
            start_at_highest<Shape>(highest, ranges, scales);
        }
    };

    static int64_t encode_block(const float *x, const float *importance, float mean_square,
                                const Neighbours &neighbours, uint8_t *bytes) {
        GridBlock<Rule::Shape> found;
        const int64_t wrong = GridBlockFit<Rule>(x, importance, neighbours).run(mean_square, found);
        Block block = {};
        int place = 0;
        for (int i = 0; i < 8; ++i) {
            if (found.empty[i]) continue;  // ggml then stores the following ones one place earlier
            for (int j = 0; j < 8; ++j) {
                const int point = found.points[8 * i + j];
                block.points[8 * place + j] = static_cast<uint8_t>(point);
                block.ninths[i] |= static_cast<uint8_t>((point >> 8) << j);
            }
            memcpy(block.signs + 4 * place++, found.signs + 4 * i, 4);
        }
        if (found.highest_scale != 0.0f) {
            const float d = found.highest_scale / 31.0f;
            block.d = half_of_float(d * 1.033f);  // ggml's fudge factor
            found.store_scale_levels(1.0f / d, block.scales);
        }
        write(bytes, block);
        return wrong;
    }

    static void decode_block(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const float d = float_of_half(block.d);
        for (int i = 0; i < 32; ++i) {
            put_point(x + 8 * i, block.two_points(2 * i), block.sign_bytes(i), block.scale(i, d));
        }
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
            const Quad four = {point(j), point(j + 1), point(j + 2), point(j + 3)};
            put_points<Store>(x + 8 * i, (Pair)four,
                              Pair{block.sign_bytes(i), block.sign_bytes(i + 1)},
                              block.scale(i, d));
        }
    }

    static bool is_valid(const uint8_t *bytes) { return is_finite_half(view<Block>(bytes).d); }
};

}  // namespace
