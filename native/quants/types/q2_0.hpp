// Q2_0: 64 levels from -1 to 2 and their scale, four neighbours in one byte.
#pragma once
#include "../codec.hpp"
#include "../extremes.hpp"

namespace {

struct Q2_0 : EncodesAnyLane<Q2_0> {
    static constexpr uint32_t id = 42, block_size = 64, block_bytes = 18;
    static constexpr const char *name = "Q2_0";

    struct BLOCK Block {
        uint16_t d;
        uint8_t fours[16];
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");

    template <class Lane, class Importance>
    static MaskOf<Lane> encode(const Lane *x, Importance, uint8_t *bytes) {
        using Int = IntOf<Lane>;
        const Lane d = largest_number<block_size>(x), zero{};
        const Lane inverse = select(less(zero, d), 1.0f / d, zero);
        Int words[4];
        for (int i = 0; i < 4; ++i) {
            words[i] = pack_levels(x + 16 * i, inverse);
        }
        scatter_halves<block_bytes>(half_of_float(d), bytes);
        store_words<4, block_bytes>(words, bytes + 2);
        return no_lane<Lane>();
    }

    // No level is above 2. NaN, as from infinity times zero, gets the lowest.
    static KERNEL_INLINE int32_t pack_levels(const float *x, float inverse) {
        uint32_t word = 0;
        for (int i = 0; i < 16; ++i) {
            const int32_t level = round_half_away(x[i] * inverse) + 1;
            word |= static_cast<uint32_t>(maximum(level, 0)) << 2 * i;
        }
        return static_cast<int32_t>(word);
    }
    static KERNEL_INLINE Ints pack_levels(const Floats *x, Floats inverse) {
        Ints joined{};
        UNROLL
        for (int place = 0; place < 4; ++place) {
            Ints rounded[4];
            UNROLL
            for (int i = 0; i < 4; ++i) rounded[i] = round_half_away(x[4 * i + place] * inverse);
            const LaneI16 first = narrow(rounded[0], rounded[1]) + 1;
            const LaneI16 last = narrow(rounded[2], rounded[3]) + 1;
            joined |= (Ints)narrow_unsigned(first, last) << 2 * place;
        }
        return deinterleave((LaneU8)joined);
    }

    // A byte in a word of its own: shifted by 6, 12 and 18 its pairs come to lie in four bytes.
    template <class Store>
    static void decode_lanes(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const float d = scalar_of_half(block.d);
        UNROLL
        for (int i = 0; i < 4; ++i) {
            const uint8_t *four = block.fours + 4 * i;
            const U32x4 words = {four[0], four[1], four[2], four[3]};
            const U32x4 spread = words | words << 6 | words << 12 | words << 18;
            put_levels<Store>(x + 16 * i, (I8x16)((U8x16)spread & 3) - 1, d);
        }
    }
};

}  // namespace
