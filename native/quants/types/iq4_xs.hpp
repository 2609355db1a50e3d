// IQ4_XS: 8 groups of 32 indices of uneven levels, each group with a scale of 6 bits, and the
// scale of those.
#pragma once
#include "../codec.hpp"
#include "../searches/uneven.hpp"
#include "iq4.hpp"

namespace {

struct IQ4_XS : EncodesAnyLane<IQ4_XS> {
    static constexpr uint32_t id = 23, block_size = 256, block_bytes = 136;
    static constexpr const char *name = "IQ4_XS";
    static constexpr Weights weights = weights_taken;

    struct BLOCK Block {
        uint16_t d, upper_scales;
        uint8_t lower_scales[4];
        uint8_t pairs[128];  // of each group: elements 16 apart share a byte
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");

    static int scale_of(const Block &block, int group) {
        const int lower = block.lower_scales[group / 2] >> group % 2 * 4 & 15;
        return (lower | (block.upper_scales >> group * 2 & 3) << 4) - 32;
    }

    template <class Lane, class Importance>
    static MaskOf<Lane> encode(const Lane *x, const Importance &importance, uint8_t *bytes) {
        const Lane block_square = twice_mean_square<256>(x);
        Lane scales[8];
        for (int group = 0; group < 8; ++group) {
            Lane weights_here[32];
            weigh_uneven(x, 32 * group, importance, block_square, weights_here);
            const Lane *own = x + 32 * group;
            scales[group] = fit_uneven<Iq4Codes<Lane>>(own, weights_here);
        }
        return pack(x, scales, bytes);
    }

    // Rounds the scales, and encodes with the rounded scales.
    template <class Lane>
    static KERNEL_INLINE MaskOf<Lane> pack(const Lane *x, const Lane *scales, uint8_t *bytes) {
        using Int = IntOf<Lane>;
        const Lane d = extreme_of<8>(scales) * (-1.0f / 32);
        const Lane inverse = inverse_or_zero(d);
        Int words[34] = {half_of_float(d)};
        auto needs_fallback = no_lane<Lane>();
        for (int group = 0; group < 8; ++group) {
            const Lane requested = inverse * scales[group];
            needs_fallback = or_(needs_fallback, beyond_nearest(requested));
            const Int capped = minimum(nearest_int(requested), broadcast_int<Int>(31));
            const Int scale = maximum(capped, broadcast_int<Int>(-32));
            const Lane own = inverse_or_zero(d * to_floats(scale));
            add_scale(scale, group, words);
            Int *pairs = words + 2 + 4 * group;
            needs_fallback =
                or_(needs_fallback, uneven_pairs<Iq4Codes<Lane>>(x + 32 * group, own, pairs));
        }
        store_words<34, block_bytes>(words, bytes);
        return needs_fallback;
    }

    // Adds the scale of a group to the first two words of a block.
    template <class Int>
    static KERNEL_INLINE void add_scale(Int scale, int group, Int *words) {
        words[0] |= shift_right(scale + 32, 4) << (16 + 2 * group);
        words[1] |= (scale & 15) << 4 * group;
    }

    template <class Store>
    static void decode_lanes(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const float d = scalar_of_half(block.d);
        UNROLL
        for (int group = 0; group < 8; ++group) {
            const float scale = d * scale_of(block, group);
            const U8x16 pairs = load_u8x16(block.pairs + 16 * group);
            float *to = x + 32 * group;
            put_levels<Store>(to, (I8x16)lookup((U8x16)iq4_levels, pairs & 15), scale);
            put_levels<Store>(to + 16, (I8x16)lookup((U8x16)iq4_levels, pairs >> 4), scale);
        }
    }
};

}  // namespace
