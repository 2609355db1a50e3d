// IQ4_NL: 32 indices of uneven levels and their scale.
#pragma once
#include "../codec.hpp"
#include "../searches/uneven.hpp"
#include "iq4.hpp"

namespace {

struct IQ4_NL : EncodesAnyLane<IQ4_NL> {
    static constexpr uint32_t id = 20, block_size = 32, block_bytes = 18;
    static constexpr const char *name = "IQ4_NL";
    static constexpr Weights weights = weights_taken;

    struct BLOCK Block {
        uint16_t d;
        uint8_t pairs[16];
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");

    template <class Lane, class Importance>
    static MaskOf<Lane> encode(const Lane *x, const Importance &importance, uint8_t *bytes) {
        Lane weights_here[32];
        weigh_uneven(x, 0, importance, twice_mean_square<32>(x), weights_here);
        const Lane d = fit_uneven<Iq4Codes<Lane>>(x, weights_here);
        IntOf<Lane> words[4];
        const auto needs_fallback = uneven_pairs<Iq4Codes<Lane>>(x, inverse_or_zero(d), words);
        scatter_halves<block_bytes>(half_of_float(d), bytes);
        store_words<4, block_bytes>(words, bytes + 2);
        return needs_fallback;
    }

    template <class Store>
    static void decode_lanes(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const float d = scalar_of_half(block.d);
        const U8x16 pairs = load_u8x16(block.pairs);
        put_levels<Store>(x, (I8x16)lookup((U8x16)iq4_levels, pairs & 15), d);
        put_levels<Store>(x + 16, (I8x16)lookup((U8x16)iq4_levels, pairs >> 4), d);
    }
};

}  // namespace
