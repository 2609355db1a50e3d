// NVFP4: 4 groups of 16 floats of 4 bits, each group with a scale of 8 bits (unsigned E4M3).
#pragma once
#include "../codec.hpp"
#include "fp4.hpp"

namespace {

struct NVFP4 : EncodesAnyLane<NVFP4> {
    static constexpr uint32_t id = 40, block_size = 64, block_bytes = 36;
    static constexpr const char *name = "NVFP4";
    static constexpr Weights weights = weights_taken;  // by the search alone

    struct BLOCK Block {
        uint8_t scales[4];
        uint8_t pairs[32];  // of each group: elements 8 apart share a byte
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");

    // ggml_ue4m3_to_fp32: the eighth bit is ignored, 0x7f is zero where the standard has a NaN, and
    // the result is half the scale, as the levels are doubled.
    static float scale_of(int32_t scale) {
        const int exponent = scale >> 3 & 15, mantissa = scale & 7;
        if (scale == 0 || scale == 0x7F) return 0.0f;
        if (exponent == 0) return mantissa * 0x1p-10f;
        return (8 + mantissa) * float_of((exponent + 127u - 11u) << 23);
    }

    static Floats scale_of(Ints scale) { return float_of(scale << 20) * 0x1p119f; }

    // ggml_fp32_to_ue4m3: half a step rounds up, and values that would reach 256 become 448.
    template <class Lane>
    static KERNEL_INLINE IntOf<Lane> nearest_scale(Lane value) {
        using Int = IntOf<Lane>;
        const Int bits = shift_right(static_cast<Int>(bits_of(value)), 19);
        const Int normal = shift_right(bits + 1, 1) - (120 << 3);
        const Int usual =
            select(less(value, broadcast<Lane>(248.0f)), normal, broadcast_int<Int>(0x7E));
        const Int denormal = minimum(truncate(value * 512.0f + 0.5f), broadcast_int<Int>(7));
        return select(less(value, broadcast<Lane>(0x1p-6f)), denormal, usual);
    }

    // Above it half levels may not fit in bytes.
    static constexpr float most = 0x1p12f;

    template <class Lane, class Importance>
    static MaskOf<Lane> encode(const Lane *x, Importance, uint8_t *bytes) {
        IntOf<Lane> scales[4];
        MaskOf<Lane> needs_fallback = no_lane<Lane>();
        for (int group = 0; group < 4; ++group) {
            const Lane size = largest_number<16>(x + 16 * group);
            needs_fallback = or_(needs_fallback, less(broadcast<Lane>(most), size));
            scales[group] = nearest_scale(size / 6.0f);
        }
        write(x, scales, bytes);
        return needs_fallback;
    }

    template <class Lane>
    static KERNEL_INLINE void write(const Lane *x, const IntOf<Lane> *scales, uint8_t *bytes) {
        IntOf<Lane> words[9] = {};
        for (int group = 0; group < 4; ++group) {
            const Lane *own = x + 16 * group;
            words[0] |= scales[group] << 8 * group;
            const Fp4Scale<Lane, false> scale(scale_of(scales[group]));
            for (int i = 0; i < 2; ++i) {
                words[1 + 2 * group + i] = fp4_pairs(scale, own + 4 * i, own + 8 + 4 * i);
            }
        }
        store_words<9, block_bytes>(words, bytes);
    }

    template <class Store>
    static void decode_lanes(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        UNROLL
        for (int group = 0; group < 4; ++group) {
            const U8x16 indices = spread_nibbles(block.pairs + 8 * group);
            put_levels<Store>(x + 16 * group, (I8x16)lookup((U8x16)fp4_levels, indices),
                              scale_of(block.scales[group]));
        }
    }

    static bool is_valid(const uint8_t *) { return true; }
};

}  // namespace
