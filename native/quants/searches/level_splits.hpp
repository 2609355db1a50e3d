// The search of IQ2_K and IQ2_KS of ik_llama.cpp: the sorted elements of a group are split at every
// three places between four levels; and the search for the scale of a row of IQ2_KS.
#pragma once
#include "../rows.hpp"
#include "moved_levels.hpp"
#include "split.hpp"

namespace {

// Sums of the first so many elements of each lane in ascending order: Size + 1 of weights, then of
// weighted elements.
template <int Size, class Lane>
void sum_sorted(const Lane *x, const Lane *weights, Lane *sums) {
    constexpr int count = sizeof(Lane) / sizeof(float);
    float elements[Size][count], importance[Size][count], of_lane[2][Size + 1][count] = {};
    memcpy(elements, x, sizeof elements);
    memcpy(importance, weights, sizeof importance);
    for (int lane = 0; lane < count; ++lane) {
        float own[Size];
        int order[Size];
        for (int i = 0; i < Size; ++i) own[i] = elements[i][lane];
        sort_order<Size>(own, order);
        for (int i = 0; i < Size; ++i) {
            const float weight = importance[order[i]][lane];
            of_lane[0][i + 1][lane] = of_lane[0][i][lane] + weight;
            of_lane[1][i + 1][lane] = of_lane[1][i][lane] + weight * own[order[i]];
        }
    }
    memcpy(sums, of_lane, sizeof of_lane);
}

// At least `Least` elements get one of the two lower levels, and as many an upper one. The splits
// before the elements `i`, `j` and `m` are tried in their order, each for plain and moved levels,
// ascending and descending.
template <int Size, int Least, class Lane>
class LevelSplits {
    static constexpr int firsts = Size - Least;
    static constexpr float levels[4][4] = {
        {-31, -13, 1, 17}, {-26, -8, 6, 22}, {17, 1, -13, -31}, {22, 6, -8, -26}};

public:
    LevelSplits(const Lane *x, const Lane *weights) { sum_sorted<Size>(x, weights, weights_); }

    // `extreme` is the largest of the elements.
    BestScale<Lane> run(Lane extreme) {
        if constexpr (!is_scalar<Lane>) {
            if (find_promising(extreme)) return best_of_promising();
        }
        for (int i = 0; i < firsts; ++i) {
            for (int j = i; j < Size; ++j) {
                for (int m = j < Least ? Least : j; m < Size; ++m) settle(i, j, m);
            }
        }
        return best_;
    }

private:
    struct Sums {
        Lane product, square;
    };

    // The sums of the elements with the two lower levels, and of those with an upper one.
    KERNEL_INLINE Sums lower(int i, int j, const float *level) const {
        const Lane more = weights_[j] - weights_[i];
        return {products_[i] * level[0] + (products_[j] - products_[i]) * level[1],
                weights_[i] * level[0] * level[0] + more * level[1] * level[1]};
    }
    KERNEL_INLINE Sums third(int j, int m, const float *level) const {
        return {(products_[m] - products_[j]) * level[2],
                (weights_[m] - weights_[j]) * level[2] * level[2]};
    }
    KERNEL_INLINE Sums last(int m, const float *level) const {
        return {(products_[Size] - products_[m]) * level[3],
                (weights_[Size] - weights_[m]) * level[3] * level[3]};
    }
    static KERNEL_INLINE Sums total(const Sums &a, const Sums &b, const Sums &c) {
        return {a.product + b.product + c.product, a.square + b.square + c.square};
    }

    KERNEL_INLINE void settle(int i, int j, int m) {
        UNROLL
        for (int k = 0; k < 4; ++k) {
            const Sums sums =
                total(lower(i, j, levels[k]), third(j, m, levels[k]), last(m, levels[k]));
            best_.settle(sums.product, sums.square, k % 2);
        }
    }

    // Splits whose score is clearly below that of another cannot be the best.
    bool find_promising(Lane extreme) {
        const Lane weight = weights_[Size], size = absolute(extreme), most = broadcast<Lane>(1e10f);
        const auto empty = less(size, broadcast<Lane>(1e-16f));
        bound_ = select(empty, broadcast<Lane>(1e38f), Lane{});
        for (int j = 1; j < Size; j += 3) note_promising<3>(j);
        // Beyond these sizes, products of sums could lose digits.
        const Lane reached = bound_ * weight;
        const auto small = and_(less(weight, most), less(weight * size, most));
        const auto usual = and_(less(broadcast<Lane>(1e-30f), reached), less(reached, most));
        if (!all(or_(empty, and_(small, usual)))) return false;
        memset(promising_, 0, sizeof promising_);
        for (int j = 0; j < Size; ++j) note_promising<1>(j);
        return true;
    }

    template <int Step>
    KERNEL_NOINLINE void note_promising(int j) {
        const int count = j < firsts ? j + 1 : firsts;
        Sums lower_sums[4][firsts];
        for (int k = 0; k < 4; ++k) {
            for (int i = 0; i < count; i += Step) lower_sums[k][i] = lower(i, j, levels[k]);
        }
        for (int m = j < Least ? Least : j; m < Size; m += Step) {
            UNROLL
            for (int k = 0; k < 4; ++k) {
                const Sums upper = third(j, m, levels[k]), end = last(m, levels[k]);
                for (int i = 0; i < count; i += Step) {
                    const Sums sums = total(lower_sums[k][i], upper, end);
                    const Lane score = sums.product * sums.product;
                    const auto promising = less(bound_ * sums.square, score);
                    if (any(promising)) {
                        promising_[i][j] |= 1u << m;
                        const Lane reached = score / sums.square * (1.0f - 1e-5f);
                        bound_ = select(promising, maximum(reached, bound_), bound_);
                    }
                }
            }
        }
    }

    BestScale<Lane> best_of_promising() {
        best_.score = bound_;
        for (int i = 0; i < firsts; ++i) {
            for (int j = i; j < Size; ++j) {
                for (uint32_t splits = promising_[i][j]; splits != 0; splits &= splits - 1) {
                    settle(i, j, __builtin_ctz(splits));
                }
            }
        }
        return best_;
    }

    Lane weights_[Size + 1], products_[Size + 1];
    Lane bound_;
    uint32_t promising_[firsts][Size];
    BestScale<Lane> best_{Lane{}, Lane{}, no_lane<Lane>()};
};

// The scale of a row whose blocks hold the scales of eight groups, and then the sums of their
// weights: make_qx_quants of ik_llama.cpp.
template <class Type, class Lane>
Lane fit_row_scale(const LaneRows<Lane> &rows, Lane extreme, Lane &winner) {
    BestScale<Lane> best{};
    for (int tenths = -10; tenths <= 9; ++tenths) {
        if (tenths == 0) continue;
        const bool is_first = tenths == -10;
        const Lane inverse = broadcast<Lane>(is_first ? -16.0f : -(16 + 0.1f * tenths)) / extreme;
        Lane product{}, square{};
        for (int64_t group = 0; group < rows.width / 32; ++group) {
            const int64_t block = Type::row_prefix + group / 8 * Type::block_bytes;
            const Lane scale = rows.get(block + 4 * (group % 8));
            const Lane weight = rows.get(block + 32 + 4 * (group % 8));
            const Lane level = to_floats(nearest_within(inverse * scale, -16, 15));
            product = product + weight * scale * level;
            square = square + weight * level * level;
        }
        if (is_first) {
            winner = inverse;
            best.scale = select(equal(square, Lane{}), Lane{}, product / square);
            best.score = best.scale * product;
        } else {
            winner = select(best.settle(product, square), inverse, winner);
        }
    }
    return select(equal(extreme, Lane{}), Lane{}, best.scale);
}

}  // namespace
