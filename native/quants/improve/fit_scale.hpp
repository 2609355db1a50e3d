// The search for the scale of a group without a minimum: many starts, then levels and scale in
// turns. A fit maximizes products^2 / squares, which minimizes the weighted error.
#pragma once
#include "../extremes.hpp"
#include "levels.hpp"

namespace {

// How hard a search tries.
struct Effort {
    int starts;     // scales to start from, for each sign
    int turns;      // of fitting levels and scales to each other
    int rounds;     // of choosing a block's scale and those of its groups
    int reach;      // how many neighbours of a stored scale are tried, on each side
    bool stretches = true;  // whether stretch.hpp follows, where there is importance
};

// What more or less of a search takes off the error, without a stretch: refits only, usual starts of
// `better`, more, those of `best`, and beyond.
constexpr Effort measured_efforts[] = {{0, 1, 1, 1, false},
                                       {2, 1, 1, 1, false},
                                       {6, 2, 2, 2, false},
                                       {16, 3, 3, 4, false},
                                       {40, 6, 4, 8, false}};
constexpr int search_count = 2;  // the efforts of `better` and `best`
static_assert(effort_count == search_count + sizeof measured_efforts / sizeof(Effort));

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
        const Lane to_low = all<Lane>(Levels::low) / extreme;
        const Lane to_high = all<Lane>(Levels::high) / extreme;
        const float first = -4.5f * Levels::spread, last = 2.5f * Levels::spread;
        const float step = (last - first) / static_cast<float>(starts);
#pragma GCC unroll 1
        for (int i = 0; i < starts; ++i) {
            const float stretch = 1.0f + first + step * (static_cast<float>(i) + 0.5f);
            const Lane inverses[2] = {to_low * stretch, to_high * stretch};
            ScaleSums<Lane> sums[2];
            sums_of<Levels, Size>(x_, weights_, inverses, sums);
            keep(sums[0]);
            keep(sums[1]);
        }
    }

    KERNEL_INLINE void improve(int turns) { start_from(best_.scale(), turns); }

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
        const auto better = both(less(Lane{}, sums.squares), less(score_, score));
        score_ = select(better, score, score_);
        best_.products = select(better, sums.products, best_.products);
        best_.squares = select(better, sums.squares, best_.squares);
    }

    const Lane *x_, *weights_;
    ScaleSums<Lane> best_{};
    Lane score_{};
};

}  // namespace
