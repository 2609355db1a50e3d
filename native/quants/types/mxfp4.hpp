// MXFP4: 32 floats of 4 bits and the power of two that they share (E8M0).
#pragma once
#include "../codec.hpp"
#include "fp4.hpp"

namespace {

struct MXFP4 : EncodesAnyLane<MXFP4> {
    static constexpr uint32_t id = 39, block_size = 32, block_bytes = 17;
    static constexpr const char *name = "MXFP4";
    static constexpr Weights weights = weights_taken;  // by the search alone

    struct BLOCK Block {
        uint8_t exponent;
        uint8_t pairs[16];
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");

    // ggml_e8m0_to_fp32_half: half of 2^(exponent - 127), as the levels are doubled.
    static float scale_of(int exponent) {
        const uint32_t denormal = 0x00200000u << (exponent & 1);
        return float_of(exponent < 2 ? denormal : (exponent - 1u) << 23);
    }
    // From exponent 2 on; for a block of zeros any number will do.
    static Floats scale_of(Ints exponent) {
        return float_of((maximum(exponent, broadcast(2)) - 1) << 23);
    }

    // floor(log2f(size)): a logarithm so close below a whole number that it rounds to it counts as
    // that number. How close tells ln 2 (709 / 1024) times the power of two that the number has.
    static int floor_of_log2(float size) {
        const float normal = size < 0x1p-126f ? size * 0x1p32f : size;
        const auto bits = static_cast<int32_t>(bits_of(normal));
        const int exponent = (bits >> 23) - 127 - (size < 0x1p-126f ? 32 : 0);
        const auto whole = static_cast<uint32_t>(exponent < 0 ? ~exponent : exponent);
        const int rounding_up = whole == 0 ? 0 : (709 << (31 - __builtin_clz(whole))) >> 10;
        return exponent + ((bits & 0x7FFFFF) + rounding_up > 0x7FFFFF);
    }

    static int exponent_of(float size, bool &) {
        if (!(size > 0.0f) || !is_finite(size)) return 0;
        return (floor_of_log2(size) - 2 + 127) & 255;
    }

    // The exponent two below that of the largest; needs_fallback if it rounds or leaves the range.
    static Ints exponent_of(Floats size, Mask &needs_fallback) {
        const Ints bits = bits_of(size);
        const Mask zero = equal(size, broadcast(0.0f));
        const Mask outside =
            or_(greater(broadcast(4 << 23), bits), greater(bits, broadcast(254 << 23)));
        const Mask unusual = or_(outside, greater(bits & 0x7FFFFF, broadcast(0x7FFF00)));
        needs_fallback = and_(unusual, not_(zero));
        return select(zero, broadcast(0), shift_right(bits, 23) - 2);
    }

    template <class Lane, class Importance>
    static MaskOf<Lane> encode(const Lane *x, Importance, uint8_t *bytes) {
        MaskOf<Lane> needs_fallback = no_lane<Lane>();
        const IntOf<Lane> exponent = exponent_of(largest_number<block_size>(x), needs_fallback);
        write(x, &exponent, bytes);
        return needs_fallback;
    }

    template <class Lane>
    static KERNEL_INLINE void write(const Lane *x, const IntOf<Lane> *exponent, uint8_t *bytes) {
        const Fp4Scale<Lane, true> scale(scale_of(*exponent));
        IntOf<Lane> words[4];
        for (int i = 0; i < 4; ++i) {
            words[i] = fp4_pairs(scale, x + 4 * i, x + 16 + 4 * i);
        }
        scatter_bytes<block_bytes>(*exponent, bytes);
        store_words<4, block_bytes>(words, bytes + 1);
    }

    template <class Store>
    static void decode_lanes(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const float d = scale_of(block.exponent);
        const U8x16 pairs = load_u8x16(block.pairs);
        put_levels<Store>(x, (I8x16)lookup((U8x16)fp4_levels, pairs & 15), d);
        put_levels<Store>(x + 16, (I8x16)lookup((U8x16)fp4_levels, pairs >> 4), d);
    }

    static bool is_valid(const uint8_t *bytes) { return view<Block>(bytes).exponent != 255; }
};

}  // namespace
