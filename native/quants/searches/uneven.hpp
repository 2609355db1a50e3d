// The search for the scale of uneven levels: the heart of quantize_row_iq4_nl_impl of ggml.
#pragma once
#include "../extremes.hpp"

namespace {

// `Codes` finds the nearest levels of four neighbours.
template <class Codes, class Lane>
class UnevenSearch {
public:
    KERNEL_INLINE UnevenSearch(const Lane *x, const Lane *weights) : x_(x), weights_(weights) {}

    KERNEL_INLINE Lane run() {
        const Lane extreme = extreme_of<32>(x_), zero{};
        const Lane first[1] = {1.0f / (-extreme / -127.0f)};
        attempt(first);
        scale_ = select(less(zero, squares_[0]), products_[0] / squares_[0], zero);
        best_ = scale_ * products_[0];
        for (int i = -7; i <= 7; i += interleaved) {
            Lane inverses[interleaved];
            for (int j = 0; j < interleaved; ++j)
                inverses[j] = broadcast<Lane>(i + j - 127.0f) / extreme;
            attempt(inverses);
            for (int j = 0; j < interleaved; ++j) settle(products_[j], squares_[j]);
        }
        return select(less(absolute(extreme), broadcast<Lane>(least_group)), zero, scale_);
    }

private:
    static constexpr int interleaved =
        3;  // candidates interleaved: they share loads and hide latency

    template <int Count>
    KERNEL_INLINE void attempt(const Lane (&inverses)[Count]) {
        Lane products[Count] = {}, squares[Count] = {};
        for (int i = 0; i < 32; i += 4) {
            UNROLL
            for (int k = 0; k < Count; ++k) {
                const Lane inverse = inverses[k] * Codes::unit;
                Lane scaled[4];
                UNROLL
                for (int j = 0; j < 4; ++j) scaled[j] = inverse * x_[i + j];
                const Codes codes(scaled);
                UNROLL
                for (int j = 0; j < 4; ++j) {
                    const Lane level = codes.level(j), weighted = weights_[i + j] * level;
                    products[k] = products[k] + weighted * x_[i + j];
                    squares[k] = squares[k] + weighted * level;
                }
            }
        }
        UNROLL
        for (int k = 0; k < Count; ++k) {
            products_[k] = products[k];
            squares_[k] = squares[k];
        }
    }

    KERNEL_INLINE void settle(Lane product, Lane square) {
        const auto better = and_(less(Lane{}, square), less(best_ * square, product * product));
        const Lane scale = product / square;
        scale_ = select(better, scale, scale_);
        best_ = select(better, scale * product, best_);
    }

    const Lane *x_, *weights_;
    Lane scale_, best_, products_[interleaved], squares_[interleaved];
};

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
