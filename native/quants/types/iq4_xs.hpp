// IQ4_XS: 8 groups of 32 indices of uneven levels, each group with a scale of 6 bits, and the
// scale of those.
#pragma once
#include "../codec.hpp"
#include "iq4.hpp"

namespace {

struct IQ4_XS {
    static constexpr uint32_t id = 23, block_size = 256, block_bytes = 136;
    static constexpr const char *name = "IQ4_XS";

    struct BLOCK Block {
        uint16_t d, upper_scales;
        uint8_t lower_scales[4];
        uint8_t pairs[128];  // of each group: elements 16 apart share a byte
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");

    static int scale_of(const Block &block, int group) {
        const int lower = block.lower_scales[group / 2] >> group % 2 * 4 & 15;
        return (lower | (block.upper_scales >> group * 2 & 3) << 4) - 32;
    }

    static void decode_block(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const float d = float_of_half(block.d);
        for (int i = 0; i < 256; ++i) {
            const int level = block.pairs[i / 32 * 16 + i % 16] >> i / 16 % 2 * 4 & 15;
            x[i] = d * scale_of(block, i / 32) * iq4_levels[level];
        }
    }

    template <class Store>
    static void decode_lanes(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const float d = scalar_of_half(block.d);
        UNROLL
        for (int group = 0; group < 8; ++group) {
            const float scale = d * scale_of(block, group);
            const Octets pairs = load_octets(block.pairs + 16 * group);
            float *to = x + 32 * group;
            put_levels<Store>(to, (Bytes)lookup((Octets)iq4_levels, pairs & 15), scale);
            put_levels<Store>(to + 16, (Bytes)lookup((Octets)iq4_levels, pairs >> 4), scale);
        }
    }

    static bool is_valid(const uint8_t *bytes) { return is_finite_half(view<Block>(bytes).d); }
};

}  // namespace
