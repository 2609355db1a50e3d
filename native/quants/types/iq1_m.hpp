// IQ1_M: 32 points of a grid of 2048 in eight dimensions, each with the upper three bits of its
// index and the sign of its shift in a nibble, and for every two a scale of 3 bits; the scale of
// those is spread over the upper nibbles of the four words of scales.
#pragma once
#include "../codec.hpp"
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

    static void decode_block(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const float d = float_of_half(block.d());
        for (int i = 0; i < 32; ++i) {
            put_shifted_point(x + 8 * i, block.point(i), block.down(i), block.scale(i, d));
        }
    }

    template <class Store>
    static void decode_lanes(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const float d = scalar_of_half(block.d());
        UNROLL
        for (int i = 0; i < 32; i += 2) {
            const Pair down = {block.down(i) ? ~uint64_t{0} : 0,
                               block.down(i + 1) ? ~uint64_t{0} : 0};
            put_shifted_points<Store>(x + 8 * i, block.point(i), block.point(i + 1), down,
                                      block.scale(i, d));
        }
    }

    static bool is_valid(const uint8_t *bytes) { return is_finite_half(view<Block>(bytes).d()); }
};

}  // namespace
