// Shared by Q4_0, Q4_1, Q5_0 and Q5_1: blocks of 32 levels, element i and i + 16 in one byte.
#pragma once
#include "../extremes.hpp"
#include "../searches/affine.hpp"
#include "../searches/symmetric.hpp"

namespace {

template <class Value>
struct Range {
    Value lowest, highest;
};

// NaN is ignored; a block of NaN alone keeps the inverted range, as in ggml.
KERNEL_INLINE Range<float> range_of(const float *x) {
    Range<float> range{largest_float, -largest_float};
    for (int i = 0; i < 32; ++i) {
        if (x[i] < range.lowest) range.lowest = x[i];
        if (x[i] > range.highest) range.highest = x[i];
    }
    return range;
}

KERNEL_INLINE Range<Floats> range_of(const Floats *x) {
    Range<Floats> range{splat(largest_float), splat(-largest_float)};
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
KERNEL_INLINE LaneOctets four_octets(const Ints *levels) {
    return narrow_again(narrow(levels[0], levels[1]), narrow(levels[2], levels[3]));
}

template <int Stride>
KERNEL_INLINE void store_nibbles(const Ints *levels, uint8_t *dst) {
    Ints words[4];
    UNROLL
    for (int i = 0; i < 4; ++i) {
        const Ints low = (Ints)four_octets(levels + 4 * i);
        const Ints high = (Ints)four_octets(levels + 4 * i + 16);
        words[i] = words_of((LaneOctets)((low & 0x0F0F0F0F) | (high & 0x0F0F0F0F) << 4));
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
        const Words bits = (Words)words_of(four_octets(levels + 4 * i)) & 0x10101010;
        word |= bits * 0x01020408 >> 28 << 4 * i;
    }
    const Ints fifths = (Ints)word;
    store_words<1, Stride>(&fifths, dst);
}

inline void split_fifths(const uint8_t *levels, uint8_t *fifths, uint8_t *pairs) {
    uint32_t word = 0;
    for (int i = 0; i < 32; ++i) word |= static_cast<uint32_t>((levels[i] >> 4) & 1) << i;
    for (int i = 0; i < 16; ++i) {
        pairs[i] = static_cast<uint8_t>((levels[i] & 15) | (levels[i + 16] & 15) << 4);
    }
    write(fifths, word);
}

inline void join_fifths(const uint8_t *fifths, const uint8_t *pairs, uint8_t *levels) {
    const uint32_t word = read<uint32_t>(fifths);
    for (int i = 0; i < 16; ++i) {
        levels[i] = static_cast<uint8_t>((pairs[i] & 15) | (word >> i & 1) << 4);
        levels[i + 16] = static_cast<uint8_t>(pairs[i] >> 4 | (word >> (i + 16) & 1) << 4);
    }
}

// The importance of a column, times a mix of the sizes of the element and of the row.
template <class Lane, class Importance>
KERNEL_INLINE void weigh_by_row(const Lane *x, const Importance &importance, Lane *weights) {
    const Lane row_square = importance.row_mean_square;
    importance.template load<32>(0, weights);
    for (int i = 0; i < 32; ++i) weights[i] = weights[i] * square_root(row_square + x[i] * x[i]);
}

// Whether the sum of squares of a lane's row is not finite, as if an element is not.
template <class Lane, class Importance>
KERNEL_INLINE MaskOf<Lane> row_overflows(const Importance &importance) {
    const Lane mean = importance.row_mean_square;
    return opposite(equal(mean - mean, all<Lane>(0.0f)));
}

// Weighted levels around `Top`, and the scale to write from their fit.
template <int Top, class Lane, class Importance>
KERNEL_INLINE Lane weighted_levels_around(const Lane *x, const Importance &importance,
                                          IntOf<Lane> *levels) {
    Lane weights[32];
    weigh_by_row(x, importance, weights);
    const auto fit = fit_symmetric<32, Top>(x, weights);
    for (int i = 0; i < 32; ++i) levels[i] = fit.template level<Top>(x[i]);
    return fit.scale;
}

// How Q4_1 and Q5_1 encode with importance: a fit per block, and levels from 0 to `Type::top`.
// `Type::write_fit(fit, levels, bytes)` lays a block out.
template <class Type>
struct EncodesAbove : EncodesAnyLane<Type> {
    static constexpr int tiles_abreast = 2;

    template <class Lane, class Importance>
    static MaskOf<Lane> encode(const Lane *x, const Importance &importance, uint8_t *bytes) {
        AffineFit<Lane> fit;
        fit_blocks<1>(x, &importance, &fit);
        return finish(x, importance, fit, bytes);
    }

    static void encode_weighted_tiles(const Floats *x, const LaneImportance *importance,
                                      uint8_t *blocks) {
        AffineFit<Floats> fits[tiles_abreast];
        fit_blocks<tiles_abreast>(x, importance, fits);
        for (int i = 0; i < tiles_abreast; ++i) {
            const Floats *own = x + 32 * i;
            uint8_t *to = blocks + i * lanes * Type::block_bytes;
            const Mask strange = finish(own, importance[i], fits[i], to);
            EncodesAbove::encode_again(strange, own, importance[i], to);
        }
    }

private:
    template <int Count, class Lane, class Importance>
    static void fit_blocks(const Lane *x, const Importance *importance, AffineFit<Lane> *fits) {
        constexpr AffineRule<32, Type::top, 37> rule{-0.9f, 0.05f};
        Lane weights[32 * Count];
        for (int i = 0; i < Count; ++i) weigh_by_row(x + 32 * i, importance[i], weights + 32 * i);
        fit_affine<Count>(rule, x, weights, fits);
    }

    template <class Lane, class Importance>
    static MaskOf<Lane> finish(const Lane *x, const Importance &importance,
                               const AffineFit<Lane> &fit, uint8_t *bytes) {
        IntOf<Lane> levels[32];
        for (int i = 0; i < 32; ++i) levels[i] = fit.level(x[i], Type::top);
        Type::write_fit(fit, levels, bytes);
        return either(fit.strange, row_overflows<Lane>(importance));
    }
};

}  // namespace
