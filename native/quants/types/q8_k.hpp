// Q8_K: 256 signed bytes, their scale as a float, and the sums of sixteen levels each.
#pragma once
#include "../codec.hpp"
#include "../extremes.hpp"

namespace {

struct Q8_K : EncodesAnyLane<Q8_K> {
    static constexpr uint32_t id = 15, block_size = 256, block_bytes = 292;
    static constexpr const char *name = "Q8_K";

    struct BLOCK Block {
        float d;
        int8_t levels[256];
        int16_t sums[16];
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");

    // Where all is zero, ggml leaves the sums as they were in memory; here they are zero.
    template <class Lane, class Importance>
    static MaskOf<Lane> encode(const Lane *x, Importance, uint8_t *bytes) {
        using Int = IntOf<Lane>;
        const Lane extreme = extreme_of<block_size>(x), zero{};
        const auto empty = equal(extreme, zero);
        const Lane inverse = -127.0f / extreme;
        Int words[73];
        words[0] = bits_of(select(empty, zero, 1.0f / inverse));
        for (int i = 0; i < 8; ++i) {
            const Int low = encode_group(x + 32 * i, inverse, empty, words + 1 + 8 * i);
            const Int high = encode_group(x + 32 * i + 16, inverse, empty, words + 5 + 8 * i);
            words[65 + i] = (low & 0xFFFF) | (high & 0xFFFF) << 16;
        }
        store_words<73, block_bytes>(words, bytes);
        return nowhere<Lane>();
    }

    // Packs sixteen levels into four words and returns their sum.
    template <class Lane>
    static KERNEL_INLINE IntOf<Lane> encode_group(const Lane *x, Lane inverse, MaskOf<Lane> empty,
                                                  IntOf<Lane> *words) {
        using Int = IntOf<Lane>;
        Int sum{};
        UNROLL
        for (int i = 0; i < 4; ++i) {
            Int levels[4];
            UNROLL
            for (int j = 0; j < 4; ++j) {
                const Int level = minimum(nearest_int(inverse * x[4 * i + j]), all_ints<Int>(127));
                levels[j] = select(empty, Int{}, low_byte(level));
                sum = sum + levels[j];
            }
            words[i] = pack_bytes(levels[0], levels[1], levels[2], levels[3]);
        }
        return sum;
    }

    static void decode_block(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        for (int i = 0; i < 256; ++i) x[i] = block.d * block.levels[i];
    }

    template <class Store>
    static void decode_lanes(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        UNROLL
        for (int i = 0; i < 256; i += 16) {
            put_levels<Store>(x + i, load_bytes(block.levels + i), block.d);
        }
    }

    static bool is_valid(const uint8_t *bytes) { return is_finite(view<Block>(bytes).d); }
};

}  // namespace
