// The search for a scale and a minimum: make_qkx2_quants and make_qkx3_quants of ggml, which differ
// only in their parameters.
#pragma once
#include "../lane.hpp"

namespace {

enum class Error { squared, absolute };

// Levels go from 0 to `Top`; the inverse scales tried are (Top + first + i * step) / range.
template <int Size, int Top, int Candidates, Error Measure = Error::squared>
struct AffineRule {
    static constexpr int size = Size, candidates = Candidates;
    static constexpr float top = Top;
    static constexpr Error error = Measure;
    float first, step;
};

// An element is scale * level + lowest.
template <class Lane>
struct AffineFit {
    Lane scale, lowest, sum_of_weights;
    Lane inverse, offset;  // of the candidate that won: they give its levels
    MaskOf<Lane> flat, needs_fallback;

    // The level of an element before scales are rounded.
    KERNEL_INLINE IntOf<Lane> level(Lane x, int32_t top) const {
        const IntOf<Lane> result = nearest_int(inverse * (x - offset)), none{};
        return select(flat, none, maximum(minimum(result, broadcast_int<IntOf<Lane>>(top)), none));
    }
};

// Fits `Count` groups, whose elements and weights follow each other.
template <class Rule, class Lane, int Count>
class AffineSearch {
    using Values = Several<Lane, Count>;
    using Masks = SeveralMasks<Lane, Count>;

public:
    KERNEL_INLINE void begin(const Lane *x, const Lane *weights) {
        x_ = x;
        weights_ = weights;
        lowest_ = at(x, 0);
        highest_ = lowest_;
        sum_of_weights_ = at(weights, 0);
        sum_of_x_ = sum_of_weights_ * lowest_;
        for (int i = 1; i < Rule::size; ++i) {
            const Values here = at(x, i), weight = at(weights, i);
            lowest_ = minimum(here, lowest_);
            highest_ = maximum(here, highest_);
            sum_of_weights_ = sum_of_weights_ + weight;
            sum_of_x_ = sum_of_x_ + weight * here;
        }
        offset_ = select(less(zero, lowest_), zero, lowest_);
        flat_ = equal(highest_, offset_);
        flat_offset_ = offset_;
        // Levels of a flat group are zeros for any range: this one needs no clamp.
        highest_ = select(flat_, offset_ + fill(1.0f), highest_);
        inverse_ = fill(Rule::top) / (highest_ - offset_);
        scale_ = fill(1.0f) / inverse_;
        winner_ = inverse_;
        winner_offset_ = offset_;
        strange_ = or_(beyond_nearest(end(highest_)), beyond_nearest(end(lowest_)));
        sum_up<true, true>();
        least_error_ = error(scale_, offset_);
    }

    // Makes the levels of a candidate, and their sums.
    KERNEL_INLINE void attempt(float span) {
        inverse_ = fill(span) / (highest_ - offset_);
        const Values first = end(lowest_), last = end(highest_);
        // Most candidates reach no bound, or one; a little inside it, as 15.5 rounds to an even
        // 16. Where one end is NaN, the other is dropped, so that it counts as out of bounds.
        const bool low = !all(less(fill(-0.4999f), minimum(last, first)));
        const bool high = !all(less(maximum(first, last), fill(Rule::top + 0.4999f)));
        if (low || high) {
            strange_ = or_(strange_, or_(beyond_nearest(first), beyond_nearest(last)));
        }
        if (is_scalar<Lane> || (low && high)) {
            sum_up<true, true>();
        } else if (low) {
            sum_up<true, false>();
        } else if (high) {
            sum_up<false, true>();
        } else {
            sum_up<false, false>();
        }
    }

    // Least squares give the candidate's scale and minimum; they are kept if the error is smaller.
    KERNEL_INLINE void settle() {
        const Values determinant = sum_of_weights_ * level_squared_ - level_ * level_;
        Values scale = (sum_of_weights_ * level_x_ - sum_of_x_ * level_) / determinant;
        Values offset = (level_squared_ * sum_of_x_ - level_ * level_x_) / determinant;
        const Masks positive = less(zero, offset);
        if (any(positive)) {
            offset = select(positive, zero, offset);
            scale = select(positive, level_x_ / level_squared_, scale);
        }
        const Values now = error(scale, offset);
        const Masks better = and_(less(zero, determinant), less(now, least_error_));
        winner_ = select(better, inverse_, winner_);
        winner_offset_ = select(better, offset_, winner_offset_);
        least_error_ = select(better, now, least_error_);
        scale_ = select(better, scale, scale_);
        offset_ = select(better, offset, offset_);
    }

    KERNEL_INLINE AffineFit<Lane> fit(int j) const {
        const auto flat = flat_.of[j];
        return {select(flat, broadcast<Lane>(0.0f), scale_.of[j]),
                select(flat, flat_offset_.of[j], offset_.of[j]),
                sum_of_weights_.of[j],
                winner_.of[j],
                winner_offset_.of[j],
                flat,
                and_(strange_.of[j], not_(flat))};
    }

private:
    static constexpr Values zero{};

    static KERNEL_INLINE Values at(const Lane *groups, int i) {
        Values values;
        UNROLL
        for (int j = 0; j < Count; ++j) values.of[j] = groups[i + j * Rule::size];
        return values;
    }

    static KERNEL_INLINE Values fill(float value) {
        Values values;
        UNROLL
        for (int j = 0; j < Count; ++j) values.of[j] = broadcast<Lane>(value);
        return values;
    }

    KERNEL_INLINE Values end(const Values &x) const { return inverse_ * (x - offset_); }

    // `Low` and `High` are the bounds that levels may reach.
    template <bool Low, bool High>
    KERNEL_INLINE void sum_up() {
        Values sum = zero, sum_of_squares = zero, sum_of_products = zero;
        const Values inverse = inverse_, offset = offset_;
#pragma GCC unroll 4
        for (int i = 0; i < Rule::size; ++i) {
            const Values here = at(x_, i);
            Values level = nearest(inverse * (here - offset));
            if constexpr (Low) level = maximum(level, zero);
            if constexpr (High) level = minimum(level, fill(Rule::top));
            levels_[i] = level;
            const Values weighted = at(weights_, i) * level;
            sum = sum + weighted;
            sum_of_squares = sum_of_squares + weighted * level;
            sum_of_products = sum_of_products + weighted * here;
        }
        level_ = sum;
        level_squared_ = sum_of_squares;
        level_x_ = sum_of_products;
    }

    KERNEL_INLINE Values error(const Values &scale, const Values &offset) const {
        Values sum = zero;
#pragma GCC unroll 4
        for (int i = 0; i < Rule::size; ++i) {
            const Values miss = scale * levels_[i] + offset - at(x_, i);
            const Values size = Rule::error == Error::absolute ? absolute(miss) : miss * miss;
            sum = sum + at(weights_, i) * size;
        }
        return sum;
    }

    const Lane *x_, *weights_;
    Values lowest_, highest_, sum_of_weights_, sum_of_x_, flat_offset_;
    Values inverse_, winner_, winner_offset_, least_error_, scale_, offset_;
    Values level_, level_squared_, level_x_;
    Masks flat_, strange_;
    Values levels_[Rule::size];
};

// Fits `Groups` groups, whose elements and weights follow each other. Two share each loop, and fits
// are pipelined: the loop of the next two starts while the last sums of these finish.
template <int Groups, class Rule, class Lane>
void fit_affine(const Rule &rule, const Lane *x, const Lane *weights, AffineFit<Lane> *fits) {
    constexpr int count = Groups == 1 ? 1 : 2, teams = Groups / count;
    static_assert(teams * count == Groups, "all groups are in teams");
    AffineSearch<Rule, Lane, count> searches[teams];
#pragma GCC unroll 1
    for (int i = 0; i < teams; ++i) {
        const int first = i * count * Rule::size;
        searches[i].begin(x + first, weights + first);
    }
    for (int i = 0; i < Rule::candidates; ++i) {
        const float span = rule.first + rule.step * i + Rule::top;
#pragma GCC unroll 1
        for (auto &search : searches) search.attempt(span);
#pragma GCC unroll 1
        for (auto &search : searches) search.settle();
    }
    for (int i = 0; i < Groups; ++i) fits[i] = searches[i / count].fit(i % count);
}

}  // namespace
