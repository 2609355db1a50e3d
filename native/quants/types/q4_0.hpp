// Q4_0: 32 levels of 4 bits around 8, and their scale, which maps the element of the largest
// magnitude to level 0.
#pragma once
#include "../codec.hpp"
#include "legacy.hpp"

namespace {

// Members for weighted blocks come from EncodesAnyLane; plain ones have simpler rules.
struct Q4_0 : EncodesAnyLane<Q4_0> {
    static constexpr uint32_t id = 2, block_size = 32, block_bytes = 18;
    static constexpr const char *name = "Q4_0";
    static constexpr bool weighs_by_row = true;
    static constexpr Weights weights = weights_taken;

    struct BLOCK Block {
        uint16_t d;
        uint8_t pairs[16];
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");

    static uint8_t level_of(float scaled) {
        const int8_t level = static_cast<int8_t>(truncate(scaled + 8.5f));
        return static_cast<uint8_t>(level < 15 ? level : 15);
    }

    static void encode_block(const float *x, uint8_t *bytes) {
        Block block;
        const float d = extreme_of<32>(x) / -8.0f;
        const float inverse = inverse_or_zero(d);
        block.d = half_of_float(d);
        for (int i = 0; i < 16; ++i) {
            const int low = level_of(x[i] * inverse), high = level_of(x[i + 16] * inverse);
            block.pairs[i] = static_cast<uint8_t>(low | high << 4);
        }
        write(bytes, block);
    }

    static void encode_lanes(const Floats *x, uint8_t *blocks) {
        const Floats d = extreme_of<32>(x) / -8.0f;
        const Floats inverse = inverse_or_zero(d);
        Ints levels[32];
        UNROLL
        for (int i = 0; i < 32; ++i) {
            // From 0 to 16, or INT32_MIN, for which ggml's detour through 8 bits gives 0 too.
            levels[i] = minimum(truncate(x[i] * inverse + 8.5f), splat(15));
        }
        scatter_halves<block_bytes>(half_of_float(d), blocks);
        store_nibbles<block_bytes>(levels, blocks + 2);
    }

    template <class Lane, class Importance>
    static MaskOf<Lane> encode(const Lane *x, const Importance &importance, uint8_t *bytes) {
        IntOf<Lane> levels[32];
        const Lane d = weighted_levels_around<8>(x, importance, levels);
        scatter_halves<block_bytes>(half_of_float(d), bytes);
        store_nibbles<block_bytes>(levels, bytes + 2);
        return row_overflows<Lane>(importance);
    }

    static void decode_block(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const float d = float_of_half(block.d);
        for (int i = 0; i < 16; ++i) {
            x[i] = ((block.pairs[i] & 15) - 8) * d;
            x[i + 16] = ((block.pairs[i] >> 4) - 8) * d;
        }
    }

    template <class Store>
    static void decode_lanes(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const float d = scalar_of_half(block.d);
        const Octets pairs = load_octets(block.pairs);
        put_levels<Store>(x, (Bytes)(pairs & 15) - 8, d);
        put_levels<Store>(x + 16, (Bytes)(pairs >> 4) - 8, d);
    }

    static bool is_valid(const uint8_t *bytes) {
        return is_finite_half(view<Block>(bytes).d);
    }
};

}  // namespace
