// MXFP4: 32 floats of 4 bits and the power of two that they share (E8M0).
#pragma once
#include "../codec.hpp"
#include "fp4.hpp"

namespace {

struct MXFP4 {
    static constexpr uint32_t id = 39, block_size = 32, block_bytes = 17;
    static constexpr const char *name = "MXFP4";

    struct BLOCK Block {
        uint8_t exponent;
        uint8_t pairs[16];
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");

    // ggml_e8m0_to_fp32_half: half of 2^(exponent - 127), as the levels are doubled.
    static float scale_of(uint8_t exponent) {
        const uint32_t denormal = 0x00200000u << (exponent & 1);
        return float_of(exponent < 2 ? denormal : (exponent - 1u) << 23);
    }

    static void decode_block(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const float d = scale_of(block.exponent);
        for (int i = 0; i < 16; ++i) {
            x[i] = fp4_levels[block.pairs[i] & 15] * d;
            x[i + 16] = fp4_levels[block.pairs[i] >> 4] * d;
        }
    }

    template <class Store>
    static void decode_lanes(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const float d = scale_of(block.exponent);
        const Octets pairs = load_octets(block.pairs);
        put_levels<Store>(x, (Bytes)lookup((Octets)fp4_levels, pairs & 15), d);
        put_levels<Store>(x + 16, (Bytes)lookup((Octets)fp4_levels, pairs >> 4), d);
    }

    static bool is_valid(const uint8_t *bytes) { return view<Block>(bytes).exponent != 255; }
};

}  // namespace
