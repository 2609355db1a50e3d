// Q3_K: 16 groups of 16 levels of 3 bits around 4, the third bits apart, each group with a scale
// of 6 bits, and the scale of those.
#pragma once
#include "../codec.hpp"

namespace {

struct Q3_K {
    static constexpr uint32_t id = 11, block_size = 256, block_bytes = 110;
    static constexpr const char *name = "Q3_K";

    struct BLOCK Block {
        uint8_t thirds[32];  // elements 32 apart share a byte
        uint8_t fours[64];   // likewise, within each half
        uint8_t scales[12];  // sixteen times 4 low bits, then 2 high bits
        uint16_t d;
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");

    static int scale_of(const Block &block, int group) {
        const int low = block.scales[group % 8] >> group / 8 * 4 & 15;
        const int high = block.scales[8 + group % 4] >> group / 4 * 2 & 3;
        return (low | high << 4) - 32;
    }

    static void decode_block(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const float d = float_of_half(block.d);
        for (int i = 0; i < 256; ++i) {
            const int low = block.fours[i / 128 * 32 + i % 32] >> i / 32 % 4 * 2 & 3;
            const int level = low - (block.thirds[i % 32] >> i / 32 & 1 ? 0 : 4);
            x[i] = d * scale_of(block, i / 16) * level;
        }
    }

    template <class Store>
    static void decode_lanes(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const float d = scalar_of_half(block.d);
        UNROLL
        for (int group = 0; group < 16; ++group) {
            const Octets fours = load_octets(block.fours + group / 8 * 32 + group % 2 * 16);
            const Octets thirds = load_octets(block.thirds + group % 2 * 16);
            const Octets levels =
                (fours >> group / 2 % 4 * 2 & 3) | (thirds >> group / 2 & 1) << 2;
            put_levels<Store>(x + 16 * group, (Bytes)levels - 4, d * scale_of(block, group));
        }
    }

    static bool is_valid(const uint8_t *bytes) { return is_finite_half(view<Block>(bytes).d); }
};

}  // namespace
