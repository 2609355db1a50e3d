// Q1_0: 128 signs and the magnitude that all elements share.
#pragma once
#include "../codec.hpp"
#include "../extremes.hpp"

namespace {

struct Q1_0 : EncodesAnyLane<Q1_0> {
    static constexpr uint32_t id = 41, block_size = 128, block_bytes = 18;
    static constexpr const char *name = "Q1_0";

    struct BLOCK Block {
        uint16_t d;
        uint8_t signs[16];  // 1 is positive
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");

    template <class Lane, class Importance>
    static MaskOf<Lane> encode(const Lane *x, Importance, uint8_t *bytes) {
        using Int = IntOf<Lane>;
        const Lane zero{};
        Lane sum = zero;
        Int words[4];
        for (int i = 0; i < 4; ++i) {
            words[i] = Int{};
            UNROLL
            for (int j = 0; j < 32; ++j) {
                const Lane here = x[32 * i + j];
                sum = sum + absolute(here);
                const auto positive = or_(less(zero, here), equal(here, zero));
                const auto bit = static_cast<int32_t>(1u << j);
                words[i] |= select(positive, broadcast_int<Int>(bit), Int{});
            }
        }
        scatter_halves<block_bytes>(half_of_float(sum / 128.0f), bytes);
        store_words<4, block_bytes>(words, bytes + 2);
        return no_lane<Lane>();
    }

    template <class Store>
    static void decode_lanes(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const float d = scalar_of_half(block.d);
        UNROLL
        for (int i = 0; i < 8; ++i) {
            const U8x16 positive = spread_bits(read<uint16_t>(block.signs + 2 * i));
            put_levels<Store>(x + 16 * i, (I8x16)(positive & 2) - 1, d);
        }
    }
};

}  // namespace
