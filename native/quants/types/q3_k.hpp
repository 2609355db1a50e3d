// Q3_K: 16 groups of 16 levels of 3 bits around 4, the third bits separate, each group with a scale
// of 6 bits, and the scale of those.
#pragma once
#include "../codec.hpp"
#include "../searches/iterative.hpp"
#include "affine_groups.hpp"
#include "quarters.hpp"
#include "symmetric_groups.hpp"

namespace {

struct Q3_K : EncodesAnyLane<Q3_K> {
    static constexpr uint32_t id = 11, block_size = 256, block_bytes = 110;
    static constexpr const char *name = "Q3_K";
    static constexpr Weights weights = weights_taken;

    struct BLOCK Block {
        uint8_t thirds[32];  // elements 32 apart share a byte
        uint8_t fours[64];   // likewise, within each half
        uint8_t scales[12];  // sixteen times 4 low bits, then 2 high bits
        uint16_t d;
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");

    static int scale_of(const Block &block, int group) {
        const int low = block.scales[group % 8] >> group / 8 * 4 & 15;
        const int high = block.scales[8 + group % 4] >> group / 4 * 2 & 3;
        return (low | high << 4) - 32;
    }

    template <class Lane>
    static MaskOf<Lane> encode(const Lane *x, const Unweighted &, uint8_t *bytes) {
        using Int = IntOf<Lane>;
        const IterativeSearch<4, Lane> search(x);
        IterativeFit<Lane> fits[16];
        Lane scales[16];
        for (int group = 0; group < 16; ++group) {
            fits[group] = search.fit(group);
            scales[group] = fits[group].scale;
        }
        const Lane extreme = extreme_of<16>(scales), inverse = -32.0f / extreme;
        const auto none = equal(extreme, Lane{});
        Int rounded[16];
        for (int group = 0; group < 16; ++group) {
            const Int level = low_byte(nearest_int(inverse * scales[group]));
            const Int inside =
                maximum(minimum(level, broadcast_int<Int>(31)), broadcast_int<Int>(-32));
            rounded[group] = select(none, Int{}, inside + 32);
        }
        const Int d = half_of_float(1.0f / inverse);
        put<Lane>(x, fits, rounded, select(none, Int{}, d), bytes);
        return no_lane<Lane>();
    }

    template <class Lane, class Importance>
    static MaskOf<Lane> encode(const Lane *x, const Importance &importance, uint8_t *bytes) {
        const Lane block_square = 2.0f * sum_of_squares(x) / 256.0f;
        SymmetricFit<Lane> fits[16];
        Lane scales[16], sums[16];
        for (int group = 0; group < 16; ++group) {
            Lane weights[16], sum{};
            weigh<16>(x, 16 * group, importance, block_square, weights);
            for (const Lane weight : weights) sum = sum + weight;
            fits[group] = fit_symmetric<16, 4>(x + 16 * group, weights);
            scales[group] = fits[group].scale;
            sums[group] = sum;
        }
        const SymmetricFit<Lane> shared = fit_symmetric<16, 32>(scales, sums);
        IntOf<Lane> rounded[16];
        for (int group = 0; group < 16; ++group) {
            rounded[group] = shared.template level<32>(scales[group]);
        }
        put<Lane>(x, fits, rounded, half_of_float(shared.scale), bytes);
        return no_lane<Lane>();
    }

    template <class Store>
    static void decode_lanes(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const float d = scalar_of_half(block.d);
        UNROLL
        for (int group = 0; group < 16; ++group) {
            const U8x16 fours = load_u8x16(block.fours + group / 8 * 32 + group % 2 * 16);
            const U8x16 thirds = load_u8x16(block.thirds + group % 2 * 16);
            const U8x16 levels = (fours >> group / 2 % 4 * 2 & 3) | (thirds >> group / 2 & 1) << 2;
            put_levels<Store>(x + 16 * group, (I8x16)levels - 4, d * scale_of(block, group));
        }
    }

    // Packs a block whose scales have been rounded to levels from 0 to 63; `levels_of(group,
    // levels)` gives the levels of a group.
    template <class Lane, class LevelsOf>
    static KERNEL_INLINE void pack(LevelsOf levels_of, const IntOf<Lane> *rounded, IntOf<Lane> d,
                                   uint8_t *bytes) {
        using Int = IntOf<Lane>;
        Int words[27] = {};
        for (int half = 0; half < 2; ++half) {
            Int levels[128];
            for (int group = 0; group < 8; ++group) {
                levels_of(8 * half + group, levels + 16 * group);
            }
            for (int i = 0; i < 8; ++i) {
                const Quarters<Int> quarters(levels, i);
                words[i] |= quarters.one_bit(2, half);
                words[8 + 8 * half + i] = quarters.two_bits(0);
            }
        }
        for (int i = 0; i < 4; ++i) {
            const Int low = pack_bytes(rounded[4 * i], rounded[4 * i + 1], rounded[4 * i + 2],
                                       rounded[4 * i + 3]);
            words[24 + i % 2] |= (low & 0x0F0F0F0F) << i / 2 * 4;
            words[26] |= (shift_right(low, 4) & 0x03030303) << 2 * i;
        }
        store_words<27, block_bytes>(words, bytes);
        scatter_halves<block_bytes>(d, bytes + 108);
    }

private:
    template <class Lane, class Fit>
    static void put(const Lane *x, const Fit *fits, const IntOf<Lane> *rounded, IntOf<Lane> d,
                    uint8_t *bytes) {
        const auto levels_of = [=](int group, IntOf<Lane> *levels) {
            const Lane scale = float_of_half(d) * to_floats(rounded[group] - 32);
            symmetric_levels<4>(x + 16 * group, scale, fits[group], levels);
        };
        pack<Lane>(levels_of, rounded, d, bytes);
    }
};

}  // namespace
