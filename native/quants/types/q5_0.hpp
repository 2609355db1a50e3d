// Q5_0: 32 levels of 5 bits around 16, the fifth bits separate, and their scale, which maps the
// element of the largest magnitude to level 0.
#pragma once
#include "../codec.hpp"
#include "legacy.hpp"

namespace {

// Members for weighted blocks come from EncodesAnyLane; plain ones have simpler rules.
struct Q5_0 : EncodesAnyLane<Q5_0> {
    static constexpr uint32_t id = 6, block_size = 32, block_bytes = 22;
    static constexpr const char *name = "Q5_0";
    static constexpr bool weighs_by_row = true;
    static constexpr Weights weights = weights_taken;

    struct BLOCK Block {
        uint16_t d;
        uint8_t fifths[4];
        uint8_t pairs[16];
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");

    static uint8_t level_of(float scaled) {
        const int8_t level = static_cast<int8_t>(truncate(scaled + 16.5f));
        return static_cast<uint8_t>(level < 31 ? level : 31);
    }

    static void encode_block(const float *x, uint8_t *bytes) {
        Block block;
        const float d = extreme_of<32>(x) / -16.0f;
        const float inverse = inverse_or_zero(d);
        block.d = half_of_float(d);
        uint8_t levels[32];
        for (int i = 0; i < 32; ++i) levels[i] = level_of(x[i] * inverse);
        split_fifths(levels, block.fifths, block.pairs);
        write(bytes, block);
    }

    static void encode_lanes(const Floats *x, uint8_t *blocks) {
        const Floats d = extreme_of<32>(x) / -16.0f;
        const Floats inverse = inverse_or_zero(d);
        Ints levels[32];
        UNROLL
        for (int i = 0; i < 32; ++i) {
            // From 0 to 32, or INT32_MIN, for which ggml's detour through 8 bits gives 0 too.
            levels[i] = minimum(truncate(x[i] * inverse + 16.5f), splat(31));
        }
        scatter_halves<block_bytes>(half_of_float(d), blocks);
        store_fifths<block_bytes>(levels, blocks + 2);
        store_nibbles<block_bytes>(levels, blocks + 6);
    }

    template <class Lane, class Importance>
    static MaskOf<Lane> encode(const Lane *x, const Importance &importance, uint8_t *bytes) {
        IntOf<Lane> levels[32];
        const Lane d = weighted_levels_around<16>(x, importance, levels);
        scatter_halves<block_bytes>(half_of_float(d), bytes);
        store_fifths<block_bytes>(levels, bytes + 2);
        store_nibbles<block_bytes>(levels, bytes + 6);
        return row_overflows<Lane>(importance);
    }

    static void decode_block(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const float d = float_of_half(block.d);
        uint8_t levels[32];
        join_fifths(block.fifths, block.pairs, levels);
        for (int i = 0; i < 32; ++i) x[i] = (levels[i] - 16) * d;
    }

    template <class Store>
    static void decode_lanes(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const float d = scalar_of_half(block.d);
        const uint32_t fifths = read<uint32_t>(block.fifths);
        const Octets pairs = load_octets(block.pairs);
        const Octets low = (pairs & 15) | (spread_bits(fifths) & 16);
        const Octets high = (pairs >> 4) | (spread_bits(fifths >> 16) & 16);
        put_levels<Store>(x, (Bytes)low - 16, d);
        put_levels<Store>(x + 16, (Bytes)high - 16, d);
    }

    static bool is_valid(const uint8_t *bytes) {
        return is_finite_half(view<Block>(bytes).d);
    }
};

}  // namespace
