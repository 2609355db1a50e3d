// The search for a scale alone, of levels around zero: make_qx_quants of ggml, with rmse_type 1.
// If ggml passes no weights, it uses the squares of the elements: pass those.
#pragma once
#include "../extremes.hpp"

namespace {

template <class Lane>
struct SymmetricFit {
    Lane scale;
    Lane inverse;        // of the candidate that won: it gives the levels
    MaskOf<Lane> empty;  // all zeros, by ggml's test

    // The level of an element from 0 to 2 * Top - 1, before scales are rounded. Empty groups get
    // the lowest, not the middle.
    template <int Top>
    KERNEL_INLINE IntOf<Lane> level(Lane x, int = 0) const {
        using Int = IntOf<Lane>;
        const Int inside = minimum(nearest_int(inverse * x), broadcast_int<Int>(Top - 1));
        return select(empty, Int{}, maximum(inside, broadcast_int<Int>(-Top)) + Top);
    }
};

template <int Size, int Top, class Lane>
class SymmetricSearch {
    // Candidates per reading of an element; divides 18.
    static constexpr int interleaved = is_scalar<Lane> ? 1 : lanes == 16 ? 6 : 3;
    using Values = Several<Lane, interleaved>;

public:
    KERNEL_INLINE SymmetricSearch(const Lane *x, const Lane *weights, float least)
        : x_(x), weights_(weights) {
        lowest_ = x[0];
        highest_ = x[0];
        for (int i = 0; i < Size; ++i) {
            lowest_ = minimum(x[i], lowest_);
            highest_ = maximum(x[i], highest_);
            products_[i] = weights[i] * x[i];
        }
        extreme_ = select(less(highest_, -lowest_), lowest_, highest_);
        // Of equally large elements, ggml takes the first.
        const bool tied = any(equal(highest_, -lowest_));
        if (is_scalar<Lane> || tied) extreme_ = extreme_of<Size, Lane>(x);
        empty_ = less(absolute(extreme_), broadcast<Lane>(least));
    }

    KERNEL_INLINE SymmetricFit<Lane> run() {
        const Several<Lane, 1> first{broadcast<Lane>(-Top) / extreme_};
        const auto sums = sum_up<is_scalar<Lane>, true>(first);  // no level is below -Top
        winner_ = first.of[0];
        const auto none = equal(sums.squares.of[0], Lane{});
        scale_ = select(none, Lane{}, sums.products.of[0] / sums.squares.of[0]);
        best_ = scale_ * sums.products.of[0];
        for (int i = 0; i < 18; i += interleaved) attempt(i);
        return {select(empty_, Lane{}, scale_), winner_, empty_};
    }

private:
    template <int Count>
    struct Sums {
        Several<Lane, Count> products, squares;
    };

    // ggml goes from -9 to 9 tenths of a level and leaves 0 out.
    static KERNEL_INLINE float tenths(int candidate) {
        return static_cast<float>(candidate < 9 ? candidate - 9 : candidate - 8);
    }

    KERNEL_INLINE void attempt(int candidate) {
        Values inverse;
        auto low = less(Lane{}, Lane{}), high = low;
        UNROLL
        for (int i = 0; i < interleaved; ++i) {
            inverse.of[i] = broadcast<Lane>(-(Top + 0.1f * tenths(candidate + i))) / extreme_;
            const Lane end = inverse.of[i] * lowest_, other = inverse.of[i] * highest_;
            // A little inside the bounds, as a tie goes to an even level.
            low = or_(low, less(minimum(end, other), broadcast<Lane>(-Top - 0.4999f)));
            high = or_(high, less(broadcast<Lane>(Top - 0.5001f), maximum(end, other)));
        }
        const auto sums =
            sum_up_within(inverse, any(and_(low, not_(empty_))), any(and_(high, not_(empty_))));
        UNROLL
        for (int i = 0; i < interleaved; ++i) {
            const Lane products = sums.products.of[i], squares = sums.squares.of[i];
            const auto better =
                and_(less(Lane{}, squares), less(best_ * squares, products * products));
            const Lane scale = products / squares;
            scale_ = select(better, scale, scale_);
            best_ = select(better, scale * products, best_);
            winner_ = select(better, inverse.of[i], winner_);
        }
    }

    KERNEL_INLINE Sums<interleaved> sum_up_within(const Values &inverse, bool low,
                                                  bool high) const {
        if (is_scalar<Lane> || (low && high)) return sum_up<true, true>(inverse);
        if (low) return sum_up<true, false>(inverse);
        if (high) return sum_up<false, true>(inverse);
        return sum_up<false, false>(inverse);
    }

    // `Low` and `High` are the bounds that levels may reach.
    template <bool Low, bool High, int Count>
    KERNEL_INLINE Sums<Count> sum_up(const Several<Lane, Count> &inverse) const {
        Sums<Count> sums{};
#pragma GCC unroll 1
        for (int i = 0; i < Size; ++i) {
            UNROLL
            for (int j = 0; j < Count; ++j) {
                Lane level = nearest(inverse.of[j] * x_[i]);
                if constexpr (High) level = minimum(level, broadcast<Lane>(Top - 1));
                if constexpr (Low) level = maximum(level, broadcast<Lane>(-Top));
                sums.products.of[j] = sums.products.of[j] + products_[i] * level;
                sums.squares.of[j] = sums.squares.of[j] + weights_[i] * level * level;
            }
        }
        return sums;
    }

    const Lane *x_, *weights_;
    Lane products_[Size];
    Lane lowest_, highest_, extreme_, winner_, scale_, best_;
    MaskOf<Lane> empty_;
};

// If no number reaches `least`, the group is empty.
template <int Size, int Top, class Lane>
SymmetricFit<Lane> fit_symmetric(const Lane *x, const Lane *weights, float least = least_group) {
    return SymmetricSearch<Size, Top, Lane>(x, weights, least).run();
}

}  // namespace
