// Which of many candidates may have the best score, a squared sum of products over a sum of
// squares, so that only those are compared one by one as ggml does.
#pragma once
#include "../lane.hpp"

namespace {

constexpr float least_sum = 1e-25f;

// The best fraction that each lane has met.
struct Contest {
    Floats products = splat(0.0f), squares = splat(1.0f);

    KERNEL_INLINE void offer(Floats product, Floats square) {
        const Mask better = less(products * square, product * squares);
        products = select(better, product, products);
        squares = select(better, square, squares);
    }

    // A score that some candidate reaches, less what rounding may add to others: what stays below
    // it cannot be the best. Where nothing can be told, `unknown`.
    KERNEL_INLINE float reachable(float unknown) const {
        // Sums so small that their products lose digits cannot tell what stays below.
        const Mask exact = both(less(splat(least_sum), products), less(splat(least_sum), squares));
        float scores[lanes], highest = 0.0f;
        store(scores, select(exact, products / squares, splat(0.0f)));
        for (float score : scores) highest = maximum(highest, score);
        const bool usual = highest > least_sum && highest < 1.0f / least_sum;
        return usual ? highest * (1.0f - 1e-5f) : unknown;
    }
};

}  // namespace
