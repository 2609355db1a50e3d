// IQ3_S: 64 points of a grid of 512 in four dimensions, their ninth bits apart, a sign for each
// element, and for every eight points a scale of 4 bits; the scale of those.
#pragma once
#include "../codec.hpp"
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

        // Two points make eight elements, as in IQ2.
        uint64_t point(int i) const {
            const uint32_t ninth = ninths[i / 4] >> i % 4 * 2;
            const uint64_t second = iq3_s_grid.points[points[2 * i + 1] | (ninth & 2) << 7];
            return iq3_s_grid.points[points[2 * i] | (ninth & 1) << 8] | second << 32;
        }
        float scale(int i, float d) const {
            return d * (1 + 2 * (scales[i / 8] >> i / 4 % 2 * 4 & 15));
        }
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");

    static void decode_block(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const float d = float_of_half(block.d);
        for (int i = 0; i < 32; ++i) {
            put_point(x + 8 * i, block.point(i), block.signs[i], block.scale(i, d));
        }
    }

    template <class Store>
    static void decode_lanes(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const float d = scalar_of_half(block.d);
        UNROLL
        for (int i = 0; i < 32; i += 2) {
            put_points<Store>(x + 8 * i, block.point(i), block.point(i + 1),
                              read<uint16_t>(block.signs + i), block.scale(i, d));
        }
    }

    static bool is_valid(const uint8_t *bytes) { return is_finite_half(view<Block>(bytes).d); }
};

}  // namespace
