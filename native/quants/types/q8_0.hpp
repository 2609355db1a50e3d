// Q8_0: 32 signed bytes and their scale.
#pragma once
#include "../codec.hpp"

namespace {

struct Q8_0 {
    static constexpr uint32_t id = 8, block_size = 32, block_bytes = 34;
    static constexpr const char *name = "Q8_0";

    struct BLOCK Block {
        uint16_t d;
        int8_t levels[32];
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");

    // A NaN passes through the maximum and is forgotten at the next element, as in ggml.
    static void encode_block(const float *x, uint8_t *bytes) {
        Block block;
        float largest = 0.0f;
        for (int i = 0; i < 32; ++i) {
            const float size = absolute(x[i]);
            largest = largest > size ? largest : size;
        }
        const float d = largest / 127.0f;
        const float inverse = inverse_or_zero(d);
        block.d = half_of_float(d);
        for (int i = 0; i < 32; ++i) {
            block.levels[i] = static_cast<int8_t>(round_half_away(x[i] * inverse));
        }
        write(bytes, block);
    }

    static void encode_lanes(const Floats *x, uint8_t *blocks) {
        Floats largest = splat(0.0f);
        UNROLL
        for (int i = 0; i < 32; ++i) largest = maximum(largest, absolute(x[i]));
        const Floats d = largest / 127.0f;
        const Floats inverse = inverse_or_zero(d);
        Ints words[8];
        UNROLL
        for (int i = 0; i < 8; ++i) {
            const Floats *four = x + 4 * i;
            words[i] = pack_bytes(
                round_half_away(four[0] * inverse), round_half_away(four[1] * inverse),
                round_half_away(four[2] * inverse), round_half_away(four[3] * inverse));
        }
        scatter_halves<block_bytes>(half_of_float(d), blocks);
        store_words<8, block_bytes>(words, blocks + 2);
    }

    static void decode_block(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const float d = float_of_half(block.d);
        for (int i = 0; i < 32; ++i) x[i] = block.levels[i] * d;
    }

    template <class Store>
    static void decode_lanes(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const float d = scalar_of_half(block.d);
        put_levels<Store>(x, load_bytes(block.levels), d);
        put_levels<Store>(x + 16, load_bytes(block.levels + 16), d);
    }

    static bool is_valid(const uint8_t *bytes) {
        return is_finite_half(view<Block>(bytes).d);
    }
};

}  // namespace
