// Shared by Q4_0, Q4_1, Q5_0 and Q5_1: blocks of 32 levels, element i and i + 16 in one byte.
#pragma once
#include "../codec.hpp"
#include "../extremes.hpp"
#include "../searches/affine.hpp"
#include "../searches/symmetric.hpp"

namespace {

template <class Lane>
struct Range {
    Lane lowest, highest;
};

// NaN is ignored; a block of NaN alone keeps the inverted range, as in ggml.
template <class Lane>
KERNEL_INLINE Range<Lane> range_of(const Lane *x) {
    Range<Lane> range{broadcast<Lane>(largest_float), broadcast<Lane>(-largest_float)};
    UNROLL
    for (int i = 0; i < 32; ++i) {
        range.lowest = minimum(x[i], range.lowest);
        range.highest = maximum(x[i], range.highest);
    }
    return range;
}

// The low four bits of 32 levels as 16 bytes.
template <int Stride, class Int>
KERNEL_INLINE void store_nibbles(const Int *levels, uint8_t *dst) {
    Int words[4];
    UNROLL
    for (int i = 0; i < 4; ++i) {
        const Int *low = levels + 4 * i, *high = low + 16;
        const Int lows = pack_bytes(low[0], low[1], low[2], low[3]);
        const Int highs = pack_bytes(high[0], high[1], high[2], high[3]);
        words[i] = (lows & 0x0F0F0F0F) | (highs & 0x0F0F0F0F) << 4;
    }
    store_words<4, Stride>(words, dst);
}

// Levels from 0 to 255; negative numbers become 0.
KERNEL_INLINE LaneU8 four_bytes_unsigned(const Ints *levels) {
    return narrow_unsigned(narrow(levels[0], levels[1]), narrow(levels[2], levels[3]));
}

template <int Stride>
KERNEL_INLINE void store_nibbles(const Ints *levels, uint8_t *dst) {
    Ints words[4];
    UNROLL
    for (int i = 0; i < 4; ++i) {
        const Ints low = (Ints)four_bytes_unsigned(levels + 4 * i);
        const Ints high = (Ints)four_bytes_unsigned(levels + 4 * i + 16);
        words[i] = deinterleave((LaneU8)((low & 0x0F0F0F0F) | (high & 0x0F0F0F0F) << 4));
    }
    store_words<4, Stride>(words, dst);
}

// Bit 4 of 32 levels as 4 bytes.
template <int Stride, class Int>
KERNEL_INLINE void store_fifths(const Int *levels, uint8_t *dst) {
    Int word{};
    UNROLL
    for (int i = 0; i < 32; ++i) word |= shift_right(levels[i] & 16, 4) << i;
    store_words<1, Stride>(&word, dst);
}

// A product collects the bits of four bytes at its top.
template <int Stride>
KERNEL_INLINE void store_fifths(const Ints *levels, uint8_t *dst) {
    Words word{};
    UNROLL
    for (int i = 0; i < 8; ++i) {
        const Words bits = (Words)deinterleave(four_bytes_unsigned(levels + 4 * i)) & 0x10101010;
        word |= bits * 0x01020408 >> 28 << 4 * i;
    }
    const Ints fifths = (Ints)word;
    store_words<1, Stride>(&fifths, dst);
}

// Levels behind the halves of a block: the fifth bits first, if there are levels above 15.
template <class Type, class Int>
KERNEL_INLINE void store_levels(const Int *levels, uint8_t *dst) {
    if constexpr (Type::top > 15) {
        store_fifths<Type::block_bytes>(levels, dst);
        dst += 4;
    }
    store_nibbles<Type::block_bytes>(levels, dst);
}

// The importance of a column, times a mix of the sizes of the element and of the row.
template <class Lane, class Importance>
KERNEL_INLINE void weigh_by_row(const Lane *x, const Importance &importance, Lane *weights) {
    const Lane row_square = importance.row_mean_square;
    importance.template load<32>(0, weights);
    for (int i = 0; i < 32; ++i) weights[i] = weights[i] * square_root(row_square + x[i] * x[i]);
}

// How the four types decode: levels from 0 to `Type::top`, above a minimum or around their middle.
template <class Type>
struct DecodesPairs : EncodesAnyLane<Type> {
    template <class Store>
    static void decode_lanes(const uint8_t *bytes, float *x) {
        const auto &block = view<typename Type::Block>(bytes);
        const float d = scalar_of_half(block.d);
        const U8x16 pairs = load_u8x16(block.pairs);
        U8x16 low = pairs & 15, high = pairs >> 4;
        if constexpr (Type::top > 15) {
            const uint32_t fifths = read<uint32_t>(block.fifths);
            low |= spread_bits(fifths) & 16;
            high |= spread_bits(fifths >> 16) & 16;
        }
        if constexpr (has_minimum<typename Type::Block>) {
            const float lowest = scalar_of_half(block.minimum);
            put_levels<Store>(x, (I8x16)low, d, lowest);
            put_levels<Store>(x + 16, (I8x16)high, d, lowest);
        } else {
            constexpr int8_t middle = (Type::top + 1) / 2;
            put_levels<Store>(x, (I8x16)low - middle, d);
            put_levels<Store>(x + 16, (I8x16)high - middle, d);
        }
    }
};

// How Q4_0 and Q5_0 encode: levels around `middle`, their scale one for all. The element of the
// largest magnitude gets level 0.
template <class Type>
struct EncodesAround : DecodesPairs<Type> {
    template <class Lane>
    static MaskOf<Lane> encode(const Lane *x, const Unweighted &, uint8_t *bytes) {
        using Int = IntOf<Lane>;
        constexpr int middle = (Type::top + 1) / 2;
        const Lane d = extreme_of<32>(x) / -static_cast<float>(middle);
        const Lane inverse = inverse_or_zero(d);
        Int levels[32];
        UNROLL
        for (int i = 0; i < 32; ++i) {
            // From 0 to top + 1, or INT32_MIN, for which ggml's detour through 8 bits gives 0 too.
            const Int level = truncate(x[i] * inverse + (middle + 0.5f));
            levels[i] = minimum(level, broadcast_int<Int>(Type::top));
        }
        scatter_halves<Type::block_bytes>(half_of_float(d), bytes);
        store_levels<Type>(levels, bytes + 2);
        return no_lane<Lane>();
    }

    template <class Lane, class Importance>
    static MaskOf<Lane> encode(const Lane *x, const Importance &importance, uint8_t *bytes) {
        constexpr int middle = (Type::top + 1) / 2;
        Lane weights[32];
        weigh_by_row(x, importance, weights);
        const auto fit = fit_symmetric<32, middle>(x, weights);
        IntOf<Lane> levels[32];
        for (int i = 0; i < 32; ++i) levels[i] = fit.template level<middle>(x[i]);
        scatter_halves<Type::block_bytes>(half_of_float(fit.scale), bytes);
        store_levels<Type>(levels, bytes + 2);
        return no_lane<Lane>();
    }
};

// How Q4_1 and Q5_1 encode: levels above a minimum; with importance, by a fit per block.
template <class Type>
struct EncodesAbove : DecodesPairs<Type> {
    static constexpr int interleaved_tiles = 2;

    template <class Lane>
    static MaskOf<Lane> encode(const Lane *x, const Unweighted &, uint8_t *bytes) {
        const Range<Lane> range = range_of(x);
        const Lane d = (range.highest - range.lowest) / static_cast<float>(Type::top);
        const Lane inverse = inverse_or_zero(d);
        IntOf<Lane> levels[32];
        UNROLL
        for (int i = 0; i < 32; ++i) {
            // From 0 to top, or INT32_MIN, whose low bits are those of level 0: no clamp.
            levels[i] = truncate((x[i] - range.lowest) * inverse + 0.5f);
        }
        store_block<IntOf<Lane>>(half_of_float(d), half_of_float(range.lowest), levels, bytes);
        return no_lane<Lane>();
    }

    template <class Lane, class Importance>
    static MaskOf<Lane> encode(const Lane *x, const Importance &importance, uint8_t *bytes) {
        AffineFit<Lane> fit;
        fit_blocks<1>(x, &importance, &fit);
        return finish(x, fit, bytes);
    }

    static void encode_weighted_tiles(const Floats *x, const LaneImportance *importance,
                                      uint8_t *blocks) {
        AffineFit<Floats> fits[interleaved_tiles];
        fit_blocks<interleaved_tiles>(x, importance, fits);
        for (int i = 0; i < interleaved_tiles; ++i) {
            const Floats *own = x + 32 * i;
            uint8_t *to = blocks + i * lanes * Type::block_bytes;
            const Mask needs_fallback = finish(own, fits[i], to);
            EncodesAbove::encode_fallback(needs_fallback, own, importance[i], to);
        }
    }

    template <class Int>
    static KERNEL_INLINE void store_block(Int d, Int minimum, const Int *levels, uint8_t *bytes) {
        scatter_halves<Type::block_bytes>(d, bytes);
        scatter_halves<Type::block_bytes>(minimum, bytes + 2);
        store_levels<Type>(levels, bytes + 4);
    }

private:
    template <int Count, class Lane, class Importance>
    static void fit_blocks(const Lane *x, const Importance *importance, AffineFit<Lane> *fits) {
        constexpr AffineRule<32, Type::top, 37> rule{-0.9f, 0.05f};
        Lane weights[32 * Count];
        for (int i = 0; i < Count; ++i) weigh_by_row(x + 32 * i, importance[i], weights + 32 * i);
        fit_affine<Count>(rule, x, weights, fits);
    }

    template <class Lane>
    static MaskOf<Lane> finish(const Lane *x, const AffineFit<Lane> &fit, uint8_t *bytes) {
        IntOf<Lane> levels[32];
        for (int i = 0; i < 32; ++i) levels[i] = fit.level(x[i], Type::top);
        store_block<IntOf<Lane>>(half_of_float(fit.scale), half_of_float(fit.lowest), levels,
                                 bytes);
        return fit.needs_fallback;
    }
};

}  // namespace
