// The search for the scale of a group without a minimum: many starts, then levels and scale in
// turns. A fit maximizes products^2 / squares, which minimizes the weighted error.
#pragma once
#include "../extremes.hpp"
#include "levels.hpp"

namespace {

// How hard a search tries.
struct Effort {
    int starts;  // scales to start from, for each sign
    int turns;   // of fitting levels and scales to each other
    int rounds;  // of choosing a block's scale and those of its groups
    int reach;   // how many neighbours of a stored scale are tried, on each side
};

template <class Levels, int Size, class Lane>
class ScaleFit {
public:
    KERNEL_INLINE ScaleFit(const Lane *x, const Lane *weights) : x_(x), weights_(weights) {}

    // Fits levels to `scale`, and a scale to the levels, in turns.
    KERNEL_INLINE void start_from(Lane scale, int turns) {
        Lane inverse = inverse_or_zero(scale);
#pragma GCC unroll 1
        for (int i = 0; i < turns; ++i) inverse = offer(inverse);
    }

    // Tries scales under which the largest element is about the lowest or the highest level.
    KERNEL_INLINE void try_starts(int starts) {
        const Lane extreme = extreme_of<Size>(x_);
        const Lane to_low = broadcast<Lane>(Levels::low) / extreme;
        const Lane to_high = broadcast<Lane>(Levels::high) / extreme;
        const float first = -4.5f * Levels::spread, last = 2.5f * Levels::spread;
        const float step = (last - first) / static_cast<float>(starts);
#pragma GCC unroll 1
        for (int i = 0; i < starts; ++i) {
            const float factor = 1.0f + first + step * (static_cast<float>(i) + 0.5f);
            const Lane inverses[2] = {to_low * factor, to_high * factor};
            ScaleSums<Lane> sums[2];
            sums_of<Levels, Size>(x_, weights_, inverses, sums);
            keep(sums[0]);
            keep(sums[1]);
        }
    }

    KERNEL_INLINE void refine(int turns) { start_from(best_.scale(), turns); }

    KERNEL_INLINE const ScaleSums<Lane> &best() const { return best_; }

private:
    KERNEL_INLINE Lane offer(Lane inverse) {
        const Lane inverses[1] = {inverse};
        ScaleSums<Lane> sums[1];
        sums_of<Levels, Size>(x_, weights_, inverses, sums);
        keep(sums[0]);
        return inverse_or_zero(best_.scale());
    }

    KERNEL_INLINE void keep(const ScaleSums<Lane> &sums) {
        const Lane score = sums.products * (sums.products / sums.squares);
        const auto better = and_(less(Lane{}, sums.squares), less(score_, score));
        score_ = select(better, score, score_);
        best_.products = select(better, sums.products, best_.products);
        best_.squares = select(better, sums.squares, best_.squares);
    }

    const Lane *x_, *weights_;
    ScaleSums<Lane> best_{};
    Lane score_{};
};

}  // namespace
