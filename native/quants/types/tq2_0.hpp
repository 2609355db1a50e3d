// TQ2_0: 256 levels of -1, 0 and 1 in 2 bits each, and their scale.
#pragma once
#include "../codec.hpp"
#include "trits.hpp"

namespace {

struct TQ2_0 : EncodesAnyLane<TQ2_0> {
    static constexpr uint32_t id = 35, block_size = 256, block_bytes = 66;
    static constexpr const char *name = "TQ2_0";

    struct BLOCK Block {
        uint8_t fours[64];  // of each half: elements 32 apart share a byte
        uint16_t d;
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");

    template <class Lane, class Importance>
    static MaskOf<Lane> encode(const Lane *x, Importance, uint8_t *bytes) {
        const Trits<Lane> trits(x);
        IntOf<Lane> words[16];
        for (int i = 0; i < 16; ++i) {
            words[i] = pack(trits, x + i / 8 * 128 + i % 8 * 4);
        }
        store_words<16, block_bytes>(words, bytes);
        scatter_halves<block_bytes>(half_of_float(trits.largest()), bytes + 64);
        return trits.needs_fallback();
    }

    // Four neighbours and those that share their bytes.
    static KERNEL_INLINE int32_t pack(const Trits<float> &trits, const float *x) {
        uint32_t word = 0;
        for (int i = 0; i < 16; ++i) {
            const uint32_t level = trits.of(x[i / 4 * 32 + i % 4]) & 3;
            word |= level << (i % 4 * 8 + i / 4 * 2);
        }
        return static_cast<int32_t>(word);
    }
    static KERNEL_INLINE Ints pack(const Trits<Floats> &trits, const Floats *x) {
        Ints joined{};
        UNROLL
        for (int place = 0; place < 4; ++place) {
            // Out-of-range bits of a lane must not reach its neighbours.
            joined |= ((Ints)trits.four(x + 32 * place) & 0x03030303) << 2 * place;
        }
        return deinterleave((LaneU8)joined);
    }

    template <class Store>
    static void decode_lanes(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const float d = scalar_of_half(block.d);
        UNROLL
        for (int i = 0; i < 16; ++i) {
            const U8x16 fours = load_u8x16(block.fours + i / 8 * 32 + i % 2 * 16);
            put_levels<Store>(x + 16 * i, (I8x16)(fours >> i / 2 % 4 * 2 & 3) - 1, d);
        }
    }
};

}  // namespace
