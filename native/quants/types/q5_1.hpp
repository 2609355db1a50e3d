// Q5_1: 32 levels of 5 bits above a minimum, the fifth bits separate, with their scale.
#pragma once
#include "../codec.hpp"
#include "legacy.hpp"

namespace {

// Members for weighted blocks come from EncodesAbove; plain ones have simpler rules.
struct Q5_1 : EncodesAbove<Q5_1> {
    static constexpr uint32_t id = 7, block_size = 32, block_bytes = 24;
    static constexpr const char *name = "Q5_1";
    static constexpr int top = 31;  // the highest level
    static constexpr bool weighs_by_row = true;
    static constexpr Weights weights = weights_taken;

    struct BLOCK Block {
        uint16_t d, minimum;
        uint8_t fifths[4];
        uint8_t pairs[16];
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");

    static void encode_block(const float *x, uint8_t *bytes) {
        Block block;
        const Range<float> range = range_of(x);
        const float d = (range.highest - range.lowest) / 31.0f;
        const float inverse = inverse_or_zero(d);
        block.d = half_of_float(d);
        block.minimum = half_of_float(range.lowest);
        uint8_t levels[32];
        for (int i = 0; i < 32; ++i) {
            levels[i] = static_cast<uint8_t>(truncate((x[i] - range.lowest) * inverse + 0.5f));
        }
        split_fifths(levels, block.fifths, block.pairs);
        write(bytes, block);
    }

    static void encode_lanes(const Floats *x, uint8_t *blocks) {
        const Range<Floats> range = range_of(x);
        const Floats d = (range.highest - range.lowest) / 31.0f;
        const Floats inverse = inverse_or_zero(d);
        Ints levels[32];
        UNROLL
        for (int i = 0; i < 32; ++i) levels[i] = truncate((x[i] - range.lowest) * inverse + 0.5f);
        scatter_halves<block_bytes>(half_of_float(d), blocks);
        scatter_halves<block_bytes>(half_of_float(range.lowest), blocks + 2);
        store_fifths<block_bytes>(levels, blocks + 4);
        store_nibbles<block_bytes>(levels, blocks + 8);
    }

    template <class Lane>
    static void write_fit(const AffineFit<Lane> &fit, const IntOf<Lane> *levels, uint8_t *bytes) {
        scatter_halves<block_bytes>(half_of_float(fit.scale), bytes);
        scatter_halves<block_bytes>(half_of_float(fit.lowest), bytes + 2);
        store_fifths<block_bytes>(levels, bytes + 4);
        store_nibbles<block_bytes>(levels, bytes + 8);
    }

    static void decode_block(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const float d = float_of_half(block.d), lowest = float_of_half(block.minimum);
        uint8_t levels[32];
        join_fifths(block.fifths, block.pairs, levels);
        for (int i = 0; i < 32; ++i) x[i] = levels[i] * d + lowest;
    }

    template <class Store>
    static void decode_lanes(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const float d = scalar_of_half(block.d), lowest = scalar_of_half(block.minimum);
        const uint32_t fifths = read<uint32_t>(block.fifths);
        const Octets pairs = load_octets(block.pairs);
        const Octets low = (pairs & 15) | (spread_bits(fifths) & 16);
        const Octets high = (pairs >> 4) | (spread_bits(fifths >> 16) & 16);
        put_levels<Store>(x, (Bytes)low, d, lowest);
        put_levels<Store>(x + 16, (Bytes)high, d, lowest);
    }

    static bool is_valid(const uint8_t *bytes) {
        const Block &block = view<Block>(bytes);
        return is_finite_half(block.d) && is_finite_half(block.minimum);
    }
};

}  // namespace
