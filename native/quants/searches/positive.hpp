// The search for the scale of numbers that are not negative: make_qp_quants of ggml.
#pragma once
#include "../lane.hpp"

namespace {

// ggml stores a level as a byte, but sums up the integer it was.
template <int Size, int Top, class Lane>
class PositiveSearch {
    using Int = IntOf<Lane>;
    using Mask = MaskOf<Lane>;

public:
    PositiveSearch(const Lane *x, const Lane *weights) : x_(x), weights_(weights) {}

    // Writes levels and returns the scale.
    Lane run(Int *levels) {
        Lane highest = zero;
        for (int i = 0; i < Size; ++i) highest = maximum(highest, x_[i]);
        const Mask none = less(highest, broadcast<Lane>(least_group));
        const Lane inverse = best_inverse(highest);
        for (int i = 0; i < Size; ++i) {
            const Int level = minimum(nearest_int(inverse * x_[i]), broadcast_int<Int>(Top));
            levels[i] = level & 255;
            sum_x_ = sum_x_ + weights_[i] * x_[i] * to_floats(level);
            sum_squares_ = sum_squares_ + weights_[i] * to_floats(level) * to_floats(level);
        }
        for (int round = 0; round < 5 && refine(levels); ++round) {
        }
        for (int i = 0; i < Size; ++i) levels[i] = select(none, Int{}, levels[i]);
        const Mask scaled = and_(less(zero, sum_squares_), not_(none));
        return select(scaled, sum_x_ / sum_squares_, zero);
    }

private:
    static constexpr Lane zero{};

    Lane best_inverse(Lane highest) const {
        Lane best = broadcast<Lane>(Top) / highest;
        Lane least_error = error<false>(best);
        for (int i = -4; i <= 4; ++i) {
            if (i == 0) continue;
            const Lane inverse = broadcast<Lane>(0.1f * i + Top) / highest;
            const Lane now = error<true>(inverse);
            const Mask better = less(now, least_error);
            least_error = select(better, now, least_error);
            best = select(better, inverse, best);
        }
        return best;
    }

    template <bool Clamped>
    Lane error(Lane inverse) const {
        const Lane scale = broadcast<Lane>(1.0f) / inverse;
        Lane sum = zero;
        for (int i = 0; i < Size; ++i) {
            const Int level = nearest_int(inverse * x_[i]);
            const Int rest = Clamped ? minimum(level, broadcast_int<Int>(Top)) : level & 255;
            const Lane miss = x_[i] - scale * to_floats(rest);
            sum = sum + weights_[i] * miss * miss;
        }
        return sum;
    }

    // Moves levels one by one to the best value given the others; returns whether any moved.
    bool refine(Int *levels) {
        bool moved = false;
        for (int i = 0; i < Size; ++i) {
            const Lane weighted = weights_[i] * x_[i], level = to_floats(levels[i]);
            Lane sum_x = sum_x_ - weighted * level;
            Lane sum_squares = sum_squares_ - weights_[i] * level * level;
            const Mask usable = and_(less(zero, sum_x), less(zero, sum_squares));
            const Int ideal = nearest_int(x_[i] * sum_squares / sum_x);
            const Int requested = minimum(ideal, broadcast_int<Int>(Top));
            sum_x = sum_x + weighted * to_floats(requested);
            sum_squares = sum_squares + weights_[i] * to_floats(requested) * to_floats(requested);
            const Mask better = less(sum_x_ * sum_x_ * sum_squares, sum_x * sum_x * sum_squares_);
            const Mask moves = and_(and_(usable, better), not_(equal(requested, levels[i])));
            if (!any(moves)) continue;  // usual: then the next one need not wait for this
            levels[i] = select(moves, requested & 255, levels[i]);
            sum_x_ = select(moves, sum_x, sum_x_);
            sum_squares_ = select(moves, sum_squares, sum_squares_);
            moved = true;
        }
        return moved;
    }

    const Lane *x_, *weights_;
    Lane sum_x_{}, sum_squares_{};
};

}  // namespace
