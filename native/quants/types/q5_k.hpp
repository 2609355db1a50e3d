// Q5_K: 8 groups of 32 levels of 5 bits, the fifth bits separate, each group with a scale and a
// minimum of 6 bits, and the scales of those.
#pragma once
#include "../codec.hpp"
#include "superblock.hpp"
#include "superblock_encode.hpp"

namespace {

struct Q5_K : EncodesAnyLane<Q5_K> {
    static constexpr uint32_t id = 13, block_size = 256, block_bytes = 176;
    static constexpr const char *name = "Q5_K";
    static constexpr Weights weights = weights_taken;
    static constexpr GroupRule<31, 16> plain_rule{-0.5f, 0.1f};
    static constexpr GroupRule<31, 37> weighted_rule{-0.9f, 0.05f};

    struct BLOCK Block {
        uint16_t d, minimum;
        uint8_t scales[12];
        uint8_t fifths[32];  // bit g belongs to group g
        uint8_t pairs[128];  // elements 32 apart share a byte
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");

    template <class Lane, class Importance>
    static MaskOf<Lane> encode(const Lane *x, const Importance &importance, uint8_t *block) {
        if constexpr (is_weighted<Importance>) {
            return encode_superblock<31, block_bytes>(weighted_rule, x, importance, block);
        } else {
            return encode_superblock<31, block_bytes>(plain_rule, x, importance, block);
        }
    }

    static void decode_block(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const float d = float_of_half(block.d), minimum = float_of_half(block.minimum);
        for (int i = 0; i < 256; ++i) {
            const ScaleMinimum group = scale_minimum(block.scales, i / 32);
            const int low = block.pairs[i / 64 * 32 + i % 32] >> i / 32 % 2 * 4 & 15;
            const int level = low | (block.fifths[i % 32] >> i / 32 & 1) << 4;
            x[i] = d * group.scale * level - minimum * group.minimum;
        }
    }

    template <class Store>
    static void decode_lanes(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const float d = scalar_of_half(block.d), minimum = scalar_of_half(block.minimum);
        UNROLL
        for (int group = 0; group < 8; ++group) {
            const ScaleMinimum own = scale_minimum(block.scales, group);
            const float scale = d * own.scale, offset = -(minimum * own.minimum);
            UNROLL
            for (int half = 0; half < 2; ++half) {
                const Octets pairs = load_octets(block.pairs + group / 2 * 32 + half * 16);
                const Octets fifths = load_octets(block.fifths + half * 16);
                const Octets levels = (pairs >> group % 2 * 4 & 15) | (fifths >> group & 1) << 4;
                put_levels<Store>(x + group * 32 + half * 16, (Bytes)levels, scale, offset);
            }
        }
    }

    static bool is_valid(const uint8_t *bytes) {
        const Block &block = view<Block>(bytes);
        return is_finite_half(block.d) && is_finite_half(block.minimum);
    }
};

}  // namespace
