// NVFP4: 4 groups of 16 floats of 4 bits, each group with a scale of 8 bits (unsigned E4M3).
#pragma once
#include "../codec.hpp"
#include "fp4.hpp"

namespace {

struct NVFP4 {
    static constexpr uint32_t id = 40, block_size = 64, block_bytes = 36;
    static constexpr const char *name = "NVFP4";

    struct BLOCK Block {
        uint8_t scales[4];
        uint8_t pairs[32];  // of each group: elements 8 apart share a byte
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");

    // ggml_ue4m3_to_fp32: the eighth bit is ignored, 0x7f is zero where the standard has a NaN, and
    // the result is half the scale, as the levels are doubled.
    static float scale_of(uint8_t scale) {
        const int exponent = scale >> 3 & 15, mantissa = scale & 7;
        if (scale == 0 || scale == 0x7F) return 0.0f;
        if (exponent == 0) return mantissa * 0x1p-10f;
        return (8 + mantissa) * float_of((exponent + 127u - 11u) << 23);
    }

    static void decode_block(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        for (int i = 0; i < 64; ++i) {
            const int level = block.pairs[i / 16 * 8 + i % 8] >> i / 8 % 2 * 4 & 15;
            x[i] = fp4_levels[level] * scale_of(block.scales[i / 16]);
        }
    }

    template <class Store>
    static void decode_lanes(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        UNROLL
        for (int group = 0; group < 4; ++group) {
            const Octets indices = spread_nibbles(block.pairs + 8 * group);
            put_levels<Store>(x + 16 * group, (Bytes)lookup((Octets)fp4_levels, indices),
                              scale_of(block.scales[group]));
        }
    }

    static bool is_valid(const uint8_t *) { return true; }
};

}  // namespace
