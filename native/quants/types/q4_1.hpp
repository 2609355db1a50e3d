// Q4_1: 32 levels of 4 bits above a minimum, with their scale.
#pragma once
#include "../codec.hpp"
#include "legacy.hpp"

namespace {

// Members for weighted blocks come from EncodesAbove; plain ones have simpler rules.
struct Q4_1 : EncodesAbove<Q4_1> {
    static constexpr uint32_t id = 3, block_size = 32, block_bytes = 20;
    static constexpr const char *name = "Q4_1";
    static constexpr int top = 15;  // the highest level
    static constexpr bool weighs_by_row = true;
    static constexpr Weights weights = weights_taken;

    struct BLOCK Block {
        uint16_t d, minimum;
        uint8_t pairs[16];
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");

    static uint8_t level_of(float scaled) {
        const int8_t level = static_cast<int8_t>(truncate(scaled + 0.5f));
        return static_cast<uint8_t>(level < 15 ? level : 15);
    }

    static void encode_block(const float *x, uint8_t *bytes) {
        Block block;
        const Range<float> range = range_of(x);
        const float d = (range.highest - range.lowest) / 15.0f;
        const float inverse = inverse_or_zero(d);
        block.d = half_of_float(d);
        block.minimum = half_of_float(range.lowest);
        for (int i = 0; i < 16; ++i) {
            const int low = level_of((x[i] - range.lowest) * inverse);
            const int high = level_of((x[i + 16] - range.lowest) * inverse);
            block.pairs[i] = static_cast<uint8_t>(low | high << 4);
        }
        write(bytes, block);
    }

    static void encode_lanes(const Floats *x, uint8_t *blocks) {
        const Range<Floats> range = range_of(x);
        const Floats d = (range.highest - range.lowest) / 15.0f;
        const Floats inverse = inverse_or_zero(d);
        Ints levels[32];
        UNROLL
        for (int i = 0; i < 32; ++i) {
            // From 0 to 15, or INT32_MIN, whose low bits are those of level 0: no clamp.
            levels[i] = truncate((x[i] - range.lowest) * inverse + 0.5f);
        }
        scatter_halves<block_bytes>(half_of_float(d), blocks);
        scatter_halves<block_bytes>(half_of_float(range.lowest), blocks + 2);
        store_nibbles<block_bytes>(levels, blocks + 4);
    }

    template <class Lane>
    static void write_fit(const AffineFit<Lane> &fit, const IntOf<Lane> *levels, uint8_t *bytes) {
        scatter_halves<block_bytes>(half_of_float(fit.scale), bytes);
        scatter_halves<block_bytes>(half_of_float(fit.lowest), bytes + 2);
        store_nibbles<block_bytes>(levels, bytes + 4);
    }

    static void decode_block(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const float d = float_of_half(block.d), lowest = float_of_half(block.minimum);
        for (int i = 0; i < 16; ++i) {
            x[i] = (block.pairs[i] & 15) * d + lowest;
            x[i + 16] = (block.pairs[i] >> 4) * d + lowest;
        }
    }

    template <class Store>
    static void decode_lanes(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const float d = scalar_of_half(block.d), lowest = scalar_of_half(block.minimum);
        const Octets pairs = load_octets(block.pairs);
        put_levels<Store>(x, (Bytes)(pairs & 15), d, lowest);
        put_levels<Store>(x + 16, (Bytes)(pairs >> 4), d, lowest);
    }

    static bool is_valid(const uint8_t *bytes) {
        const Block &block = view<Block>(bytes);
        return is_finite_half(block.d) && is_finite_half(block.minimum);
    }
};

}  // namespace
