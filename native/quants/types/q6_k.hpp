// Q6_K: 16 groups of 16 levels of 6 bits around 32, the upper two bits apart, each group with a
// scale of 8 bits, and the scale of those.
#pragma once
#include "../codec.hpp"

namespace {

struct Q6_K {
    static constexpr uint32_t id = 14, block_size = 256, block_bytes = 210;
    static constexpr const char *name = "Q6_K";

    struct BLOCK Block {
        uint8_t pairs[128];  // of each half: elements 64 apart share a byte
        uint8_t uppers[64];  // of each half: elements 32 apart share a byte
        int8_t scales[16];
        uint16_t d;
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");

    static void decode_block(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const float d = float_of_half(block.d);
        for (int i = 0; i < 256; ++i) {
            const int low = block.pairs[i / 128 * 64 + i % 64] >> i / 64 % 2 * 4 & 15;
            const int upper = block.uppers[i / 128 * 32 + i % 32] >> i / 32 % 4 * 2 & 3;
            x[i] = d * block.scales[i / 16] * ((low | upper << 4) - 32);
        }
    }

    template <class Store>
    static void decode_lanes(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const float d = scalar_of_half(block.d);
        UNROLL
        for (int group = 0; group < 16; ++group) {
            const Octets pairs = load_octets(block.pairs + group / 8 * 64 + group % 4 * 16);
            const Octets uppers = load_octets(block.uppers + group / 8 * 32 + group % 2 * 16);
            const Octets low = pairs >> group / 4 % 2 * 4 & 15;
            const Octets levels = low | (uppers >> group / 2 % 4 * 2 & 3) << 4;
            put_levels<Store>(x + 16 * group, (Bytes)levels - 32, d * block.scales[group]);
        }
    }

    static bool is_valid(const uint8_t *bytes) { return is_finite_half(view<Block>(bytes).d); }
};

}  // namespace
