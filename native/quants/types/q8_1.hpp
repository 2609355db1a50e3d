// Q8_1: Q8_0 with the sum of its elements, an activation's partner of Q4_1 and Q5_1.
#pragma once
#include "../codec.hpp"
#include "../extremes.hpp"

namespace {

struct Q8_1 : EncodesAnyLane<Q8_1> {
    static constexpr uint32_t id = 9, block_size = 32, block_bytes = 36;
    static constexpr const char *name = "Q8_1";

    struct BLOCK Block {
        uint16_t d, sum;
        int8_t levels[32];
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");

    template <class Lane, class Importance>
    static MaskOf<Lane> encode(const Lane *x, Importance, uint8_t *bytes) {
        using Int = IntOf<Lane>;
        const Lane d = largest_size<block_size>(x) / 127.0f;
        const Lane inverse = inverse_or_zero(d);
        Int words[8], sum{};
        for (int i = 0; i < 8; ++i) {
            Int levels[4];
            UNROLL
            for (int j = 0; j < 4; ++j) {
                levels[j] = low_byte(round_half_away(x[4 * i + j] * inverse));
                sum = sum + levels[j];
            }
            words[i] = pack_bytes(levels[0], levels[1], levels[2], levels[3]);
        }
        scatter_halves<block_bytes>(half_of_float(d), bytes);
        scatter_halves<block_bytes>(half_of_float(to_floats(sum) * d), bytes + 2);
        store_words<8, block_bytes>(words, bytes + 4);
        return nowhere<Lane>();
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

    // ggml's validation does not know the type; what it asks of Q4_1 fits.
    static bool is_valid(const uint8_t *bytes) {
        const Block &block = view<Block>(bytes);
        return is_finite_half(block.d) && is_finite_half(block.sum);
    }
};

}  // namespace
