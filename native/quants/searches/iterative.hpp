// The search that moves levels one by one: make_q3_quants of ggml, with do_rmse.
#pragma once
#include "../lane.hpp"

namespace {

// Sixteen levels that no single number gives again, four bits each.
template <class Lane>
struct IterativeFit {
    Lane scale;
    IntOf<Lane> packed[2];

    template <int Top>
    KERNEL_INLINE IntOf<Lane> level(Lane, int i) const {
        return shift_right(packed[i / 8], 4 * (i % 8)) & 15;
    }
};

// Fits `Count` groups of 16, which follow each other; each step waits for a division, so others
// fill the time.
template <int Top, class Lane, int Count>
class IterativeSearch {
    using Values = Several<Lane, Count>;
    using Masks = SeveralMasks<Lane, Count>;

public:
    KERNEL_INLINE explicit IterativeSearch(const Lane *x) : x_(x) {
        Values size{}, extreme{};
        for (int i = 0; i < 16; ++i) {
            const Masks larger = less(size, absolute(at(i)));
            extreme = select(larger, at(i), extreme);
            size = select(larger, absolute(at(i)), size);
        }
        empty_ = less(size, fill(least_group));
        const Values inverse = fill(-Top) / extreme;
        for (int i = 0; i < 16; ++i) {
            const Values here = at(i), square = here * here;
            levels_[i] = clamped(inverse * here);
            sum_ = sum_ + square * here * levels_[i];
            squares_ = squares_ + square * levels_[i] * levels_[i];
        }
        // Empty groups never move: the sum that a level leaves stays below zero.
        sum_ = select(empty_, fill(-1.0f), sum_);
        for (int round = 0; round < 5 && improve(); ++round) {
        }
    }

    KERNEL_INLINE IterativeFit<Lane> fit(int j) const {
        using Int = IntOf<Lane>;
        const auto empty = empty_.of[j];
        const Lane none{}, sum = sum_.of[j], squares = squares_.of[j];
        const auto scaled = both(less(none, squares), opposite(empty));
        IterativeFit<Lane> found{select(scaled, sum / squares, none), {}};
        for (int i = 0; i < 16; ++i) {
            const Int level = nearest_int(levels_[i].of[j] + static_cast<float>(Top));
            found.packed[i / 8] |= select(empty, Int{}, level) << 4 * (i % 8);
        }
        return found;
    }

private:
    KERNEL_INLINE Values at(int i) const {
        Values made;
        UNROLL
        for (int j = 0; j < Count; ++j) made.of[j] = x_[i + 16 * j];
        return made;
    }

    static KERNEL_INLINE Values fill(float value) {
        Values made;
        UNROLL
        for (int j = 0; j < Count; ++j) made.of[j] = all<Lane>(value);
        return made;
    }

    // Exact for any argument, unlike `nearest`: a quotient may be as large as it likes.
    static KERNEL_INLINE Values clamped(Values value) {
        using Int = IntOf<Lane>;
        UNROLL
        for (int j = 0; j < Count; ++j) {
            const Int level = minimum(nearest_int(value.of[j]), all_ints<Int>(Top - 1));
            value.of[j] = to_floats(maximum(level, all_ints<Int>(-Top)));
        }
        return value;
    }

    // Tells whether any level moved.
    KERNEL_INLINE bool improve() {
        const Values none{};
        Masks moved = less(none, none);
#pragma GCC unroll 1
        for (int i = 0; i < 16; ++i) {
            const Values here = at(i), square = here * here, weighted = square * here;
            const Values level = levels_[i];
            Values sum = sum_ - weighted * level, squares = squares_ - square * level * level;
            const Masks usable = less(none, sum);
            const Values wanted = clamped(here * squares / sum);
            sum = sum + weighted * wanted;
            squares = squares + square * wanted * wanted;
            const Masks better = less(sum_ * sum_ * squares, sum * sum * squares_);
            Masks moves = both(both(usable, better), less(none, squares));
            moves = both(moves, either(less(level, wanted), less(wanted, level)));
            levels_[i] = select(moves, wanted, level);
            sum_ = select(moves, sum, sum_);
            squares_ = select(moves, squares, squares_);
            moved = either(moved, moves);
        }
        return any(moved);
    }

    const Lane *x_;
    Values levels_[16];
    Values sum_{}, squares_{};
    Masks empty_;
};

template <int Top, int Count, class Lane>
void fit_iteratively(const Lane *x, IterativeFit<Lane> *fits) {
    const IterativeSearch<Top, Lane, Count> search(x);
    UNROLL
    for (int j = 0; j < Count; ++j) fits[j] = search.fit(j);
}

}  // namespace
