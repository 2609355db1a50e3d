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

// At least `Least` elements get one of the two lower levels, and as many an upper one.
template <int Size, int Least, class Lane>
BestScale<Lane> fit_level_splits(const Lane *x, const Lane *weights_of) {
    // Plain and moved levels, ascending and descending.
    static constexpr float levels[4][4] = {
        {-31, -13, 1, 17}, {-26, -8, 6, 22}, {17, 1, -13, -31}, {22, 6, -8, -26}};
    Lane weights[2 * Size + 2], *const products = weights + Size + 1;
    sum_sorted<Size>(x, weights_of, weights);
    BestScale<Lane> best{Lane{}, Lane{}, no_lane<Lane>()};
    for (int i = 0; i < Size - Least; ++i) {
        for (int j = i; j < Size; ++j) {
            Lane product[4], square[4];
            for (int k = 0; k < 4; ++k) {
                const float first = levels[k][0], second = levels[k][1];
                product[k] = products[i] * first + (products[j] - products[i]) * second;
                const Lane more = weights[j] - weights[i];
                square[k] = weights[i] * first * first + more * second * second;
            }
            for (int m = j < Least ? Least : j; m < Size; ++m) {
                const Lane middle = products[m] - products[j], end = products[Size] - products[m];
                const Lane weight = weights[m] - weights[j], rest = weights[Size] - weights[m];
                UNROLL
                for (int k = 0; k < 4; ++k) {
                    const float third = levels[k][2], last = levels[k][3];
                    best.settle(product[k] + middle * third + end * last,
                                square[k] + weight * third * third + rest * last * last, k % 2);
                }
            }
        }
    }
    return best;
}

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
