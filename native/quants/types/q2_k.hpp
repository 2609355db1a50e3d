// Q2_K: 16 groups of 16 levels of 2 bits, each group with a scale and a minimum of 4 bits, and
// the scales of those.
#pragma once
#include "../codec.hpp"

namespace {

struct Q2_K {
    static constexpr uint32_t id = 10, block_size = 256, block_bytes = 84;
    static constexpr const char *name = "Q2_K";

    struct BLOCK Block {
        uint8_t scales[16];  // low nibble: scale; high: minimum
        uint8_t fours[64];   // elements 32 apart share a byte
        uint16_t d, minimum;
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");

    static void decode_block(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const float d = float_of_half(block.d), minimum = float_of_half(block.minimum);
        for (int i = 0; i < 256; ++i) {
            const uint8_t scale = block.scales[i / 16];
            const int level = block.fours[i / 128 * 32 + i % 32] >> i / 32 % 4 * 2 & 3;
            x[i] = d * (scale & 15) * level - minimum * (scale >> 4);
        }
    }

    template <class Store>
    static void decode_lanes(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const float d = scalar_of_half(block.d), minimum = scalar_of_half(block.minimum);
        UNROLL
        for (int group = 0; group < 16; ++group) {
            const Octets fours = load_octets(block.fours + group / 8 * 32 + group % 2 * 16);
            const Octets levels = fours >> group / 2 % 4 * 2 & 3;
            const uint8_t scale = block.scales[group];
            put_levels<Store>(x + 16 * group, (Bytes)levels, d * (scale & 15),
                              -(minimum * (scale >> 4)));
        }
    }

    static bool is_valid(const uint8_t *bytes) {
        const Block &block = view<Block>(bytes);
        return is_finite_half(block.d) && is_finite_half(block.minimum);
    }
};

}  // namespace
