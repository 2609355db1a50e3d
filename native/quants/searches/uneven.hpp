// The search for the scale of uneven levels: the heart of quantize_row_iq4_nl_impl of ggml.
#pragma once
#include "../extremes.hpp"

namespace {

// The codes of four neighbours; some also depend on weights and the scale.
template <class Codes, class Lane>
KERNEL_INLINE Codes codes_of(const Lane *scaled, const Lane *x, const Lane *weights, Lane scale) {
    if constexpr (Codes::is_weighted) {
        return Codes(scaled, x, weights, scale);
    } else {
        return Codes(scaled);
    }
}

// The weighted sums of products with the nearest levels under each candidate's inverse of the
// scale, and of the levels' squares. `Codes` finds the nearest levels of four neighbours.
template <class Codes, int Size = 32, int Count, class Lane>
KERNEL_INLINE void uneven_sums(const Lane *x, const Lane *weights, const Lane (&inverses)[Count],
                               Lane (&products)[Count], Lane (&squares)[Count]) {
    const Lane scale = 1.0f / inverses[0];
    for (int k = 0; k < Count; ++k) products[k] = squares[k] = Lane{};
    for (int i = 0; i < Size; i += 4) {
        UNROLL
        for (int k = 0; k < Count; ++k) {
            const Lane inverse = inverses[k] * Codes::unit;
            Lane scaled[4];
            UNROLL
            for (int j = 0; j < 4; ++j) scaled[j] = inverse * x[i + j];
            const auto codes = codes_of<Codes>(scaled, x + i, weights + i, scale);
            UNROLL
            for (int j = 0; j < 4; ++j) {
                const Lane level = codes.level(j), weighted = weights[i + j] * level;
                products[k] = products[k] + weighted * x[i + j];
                squares[k] = squares[k] + weighted * level;
            }
        }
    }
}

// The best scale so far, and whether it goes with moved levels.
template <class Lane>
struct BestScale {
    Lane scale, score;
    MaskOf<Lane> is_moved;

    // Takes the scale of these sums where it is better; returns where.
    KERNEL_INLINE MaskOf<Lane> settle(Lane product, Lane square, bool moved = false) {
        const auto better = and_(less(Lane{}, square), less(score * square, product * product));
        if (!any(better)) return better;
        const Lane here = product / square;
        scale = select(better, here, scale);
        score = select(better, here * product, score);
        is_moved = moved ? or_(is_moved, better) : and_(is_moved, not_(better));
        return better;
    }
};

template <class Codes, class Lane>
KERNEL_INLINE Lane fit_uneven(const Lane *x, const Lane *weights) {
    constexpr int interleaved = 3;  // candidates: they share loads and hide latency
    const Lane extreme = extreme_of<32>(x), zero{};
    const Lane first[1] = {1.0f / (-extreme / -127.0f)};
    Lane product[1], square[1];
    uneven_sums<Codes>(x, weights, first, product, square);
    const Lane scale = select(less(zero, square[0]), product[0] / square[0], zero);
    BestScale<Lane> best{scale, scale * product[0], no_lane<Lane>()};
    for (int i = -7; i <= 7; i += interleaved) {
        Lane inverses[interleaved], products[interleaved], squares[interleaved];
        for (int j = 0; j < interleaved; ++j)
            inverses[j] = broadcast<Lane>(i + j - 127.0f) / extreme;
        uneven_sums<Codes>(x, weights, inverses, products, squares);
        for (int j = 0; j < interleaved; ++j) best.settle(products[j], squares[j]);
    }
    return select(less(absolute(extreme), broadcast<Lane>(least_group)), zero, best.scale);
}

// Weights of 32 elements; `block_square` is twice the mean square of their block.
template <class Lane, class Importance>
KERNEL_INLINE void weigh_uneven(const Lane *x, int first, const Importance &importance,
                                Lane block_square, Lane *weights) {
    if constexpr (is_weighted<Importance>) {
        importance.template load<32>(first, weights);
        for (int i = 0; i < 32; ++i) {
            const Lane here = x[first + i];
            weights[i] = weights[i] * square_root(block_square + here * here);
        }
    } else {
        for (int i = 0; i < 32; ++i) weights[i] = x[first + i] * x[first + i];
    }
}

template <int Size, class Lane>
KERNEL_INLINE Lane twice_mean_square(const Lane *x) {
    Lane sum{};
    for (int i = 0; i < Size; ++i) sum = sum + x[i] * x[i];
    return sum * (2.0f / Size);
}

// Writes the indices of 32 elements under a scale's inverse, in four words of pairs. Returns the
// lanes in which the inverse is out of range.
template <class Codes, class Lane>
KERNEL_INLINE MaskOf<Lane> uneven_pairs(const Lane *x, Lane inverse, IntOf<Lane> *words) {
    const Lane fine = inverse * Codes::unit;
    for (int i = 0; i < 4; ++i) {
        Lane low[4], high[4];
        UNROLL
        for (int j = 0; j < 4; ++j) {
            low[j] = minimum(fine * x[4 * i + j], broadcast<Lane>(1e6f));
            high[j] = minimum(fine * x[16 + 4 * i + j], broadcast<Lane>(1e6f));
        }
        words[i] = Codes(low).word() | Codes(high).word() << 4;
    }
    return not_(less(absolute(fine), broadcast<Lane>(3e38f)));
}

}  // namespace
