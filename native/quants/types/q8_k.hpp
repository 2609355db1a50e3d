// Q8_K: 256 signed bytes, their scale as a float, and the sums of sixteen levels each.
#pragma once
#include "../codec.hpp"

namespace {

struct Q8_K {
    static constexpr uint32_t id = 15, block_size = 256, block_bytes = 292;
    static constexpr const char *name = "Q8_K";

    struct BLOCK Block {
        float d;
        int8_t levels[256];
        int16_t sums[16];
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");

    static void decode_block(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        for (int i = 0; i < 256; ++i) x[i] = block.d * block.levels[i];
    }

    template <class Store>
    static void decode_lanes(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        UNROLL
        for (int i = 0; i < 256; i += 16) {
            put_levels<Store>(x + i, load_bytes(block.levels + i), block.d);
        }
    }

    static bool is_valid(const uint8_t *bytes) { return is_finite(view<Block>(bytes).d); }
};

}  // namespace
