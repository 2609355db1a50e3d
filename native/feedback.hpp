// Chooses levels while errors are fed back: one column after the other, for many rows at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

constexpr size_t most_columns = 64;  // of a group

// The levels of an element, in ascending order, and the values half way between them. Without such
// values, the levels are the numbers below `count`.
struct OrderedLevels {
    const float *levels, *bounds;
    size_t count;
};

// A group of columns with one scale and one shift for each of `rows` rows. `exact`, `targets`,
// `errors` and `places` (numbers of levels) hold `rows` numbers for each column. `shares[i][j]` is
// the share of the error in column j that column i makes up for: the target grows by it. A cost
// grows by the weighted squares of what is missing to the targets.
struct Group {
    const float *exact;
    float *targets, *errors, *costs;
    uint8_t *places;
    const float *scales, *shifts, *shares, *weights;
    size_t columns, rows;
};

typedef float Four __attribute__((vector_size(16)));
typedef int32_t FourInts __attribute__((vector_size(16)));
constexpr size_t vectors = 4;  // that are computed together
constexpr size_t rows_at_once = 4 * vectors;

// The value where a mask is set, else zero.
inline Four masked(FourInts mask, Four value) { return (Four)(mask & (FourInts)value); }

// Moves a value to the nearest level; returns the number of the level.
inline Four take_nearest(Four &value, const OrderedLevels &levels) {
    Four place = {};
    if (!levels.bounds) {
        constexpr float rounding = 12582912.0f;  // to it and back rounds numbers below 2^22
        const Four highest = place + static_cast<float>(levels.count - 1);
        const Four raised = masked(value > 0, value);
        const FourInts is_above = raised > highest;
        value = masked(is_above, highest) + masked(~is_above, raised);
        return value = (value + rounding) - rounding;
    }
    Four level = place + levels.levels[0];
    for (size_t i = 1; i < levels.count; ++i) {
        const FourInts is_above = value > levels.bounds[i - 1];
        level += masked(is_above, Four{} + (levels.levels[i] - levels.levels[i - 1]));
        place -= __builtin_convertvector(is_above, Four);
    }
    value = level;
    return place;
}

// Some rows of an array, with zeros for those that are not there.
struct Rows {
    Four of[vectors] = {};
    Rows() = default;
    Rows(const float *from, size_t rows) { memcpy(of, from, rows * sizeof(float)); }
    void store(float *to, size_t rows) const { memcpy(to, of, rows * sizeof(float)); }
};

// Chooses the levels of rows from `first` on: as many as fit the vectors, or the `rest`.
template <bool are_full>
inline void choose_levels(const Group &group, const OrderedLevels &levels, size_t first,
                          size_t rest = 0) {
    const size_t rows = are_full ? rows_at_once : rest;
    Rows errors[most_columns];
    const Rows scales(group.scales + first, rows), shifts(group.shifts + first, rows);
    Rows costs(group.costs + first, rows), inverses;
    for (size_t i = 0; i < vectors; ++i)
        inverses.of[i] = masked(scales.of[i] != 0, 1.0f / scales.of[i]);
    for (size_t column = 0; column < group.columns; ++column) {
        const size_t start = column * group.rows + first;
        const Rows exact(group.exact + start, rows);
        Rows targets(group.targets + start, rows), sums;
        for (size_t before = 0; before < column; ++before) {
            const float share = group.shares[column * group.columns + before];
            for (size_t i = 0; i < vectors; ++i) sums.of[i] += share * errors[before].of[i];
        }
        for (size_t i = 0; i < vectors; ++i) {
            targets.of[i] += sums.of[i];
            Four value = (targets.of[i] - shifts.of[i]) * inverses.of[i];
            const Four places = take_nearest(value, levels);
            const Four chosen = value * scales.of[i] + shifts.of[i];
            const Four missing = targets.of[i] - chosen;
            errors[column].of[i] = exact.of[i] - chosen;
            costs.of[i] += group.weights[column] * missing * missing;
            for (size_t lane = 0; lane < 4 && 4 * i + lane < rows; ++lane)
                group.places[start + 4 * i + lane] = static_cast<uint8_t>(places[lane]);
        }
        targets.store(group.targets + start, rows);
        errors[column].store(group.errors + start, rows);
    }
    costs.store(group.costs + first, rows);
}

inline void choose_levels(const Group &group, const OrderedLevels &levels) {
    size_t row = 0;
    for (; row + rows_at_once <= group.rows; row += rows_at_once)
        choose_levels<true>(group, levels, row);
    if (row < group.rows) choose_levels<false>(group, levels, row, group.rows - row);
}
