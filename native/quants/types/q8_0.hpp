// Q8_0: 32 signed bytes and their scale.
#pragma once
#include "../codec.hpp"
#include "../extremes.hpp"

namespace {

struct Q8_0 : EncodesAnyLane<Q8_0> {
    static constexpr uint32_t id = 8, block_size = 32, block_bytes = 34;
    static constexpr const char *name = "Q8_0";

    struct BLOCK Block {
        uint16_t d;
        int8_t levels[32];
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");

    // A NaN passes through the maximum and is forgotten at the next element, as in ggml.
    template <class Lane, class Importance>
    static MaskOf<Lane> encode(const Lane *x, Importance, uint8_t *bytes) {
        const Lane d = largest_size<32>(x) / 127.0f, inverse = inverse_or_zero(d);
        IntOf<Lane> words[8];
        UNROLL
        for (int i = 0; i < 8; ++i) {
            const Lane *four = x + 4 * i;
            words[i] =
                pack_bytes(round_half_away(four[0] * inverse), round_half_away(four[1] * inverse),
                           round_half_away(four[2] * inverse), round_half_away(four[3] * inverse));
        }
        scatter_halves<block_bytes>(half_of_float(d), bytes);
        store_words<8, block_bytes>(words, bytes + 2);
        return no_lane<Lane>();
    }

    template <class Store>
    static void decode_lanes(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const float d = scalar_of_half(block.d);
        put_levels<Store>(x, load_i8x16(block.levels), d);
        put_levels<Store>(x + 16, load_i8x16(block.levels + 16), d);
    }
};

}  // namespace
