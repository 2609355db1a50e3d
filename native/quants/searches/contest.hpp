// Finds which of many candidates may have the best score, a squared sum of products over a sum of
// squares, so that only those are compared one by one as ggml does.
#pragma once
#include "nearest.hpp"

namespace {

constexpr float least_sum = 1e-25f;

// The best fraction of each lane so far.
struct Contest {
    Floats products = broadcast(0.0f), squares = broadcast(1.0f);

    KERNEL_INLINE void offer(Floats product, Floats square) {
        choose(less(products * square, product * squares), product, square);
    }

    // The same for some lanes.
    KERNEL_INLINE void offer(Floats product, Floats square, Mask some) {
        choose(and_(some, less(products * square, product * squares)), product, square);
    }

    // A score that some candidate reaches, minus the rounding error of others: candidates below it
    // cannot be the best. `unknown` if there is no such bound.
    KERNEL_INLINE float reachable(float unknown) const {
        // Sums so small that their products lose digits give no bound.
        const Mask exact =
            and_(less(broadcast(least_sum), products), less(broadcast(least_sum), squares));
        const float highest = highest_lane(select(exact, products / squares, broadcast(0.0f)));
        const bool usual = highest > least_sum && highest < 1.0f / least_sum;
        return usual ? highest * (1.0f - 1e-5f) : unknown;
    }

private:
    KERNEL_INLINE void choose(Mask better, Floats product, Floats square) {
        products = select(better, product, products);
        squares = select(better, square, squares);
    }
};

}  // namespace
