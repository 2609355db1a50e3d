// Chooses levels while errors are fed back: one column after the other, for many rows at once.
#pragma once
#include "simd.hpp"
#include "table.hpp"

namespace {

constexpr size_t vectors = 4;  // that are computed together
constexpr size_t rows_at_once = lanes * vectors;

// Moves a value to the nearest level; returns the number of the level.
KERNEL_INLINE Ints take_nearest(Floats &value, const OrderedLevels &levels) {
    if (!levels.bounds) {
        const Floats highest = broadcast(static_cast<float>(levels.count - 1));
        value = nearest(minimum(maximum(value, Floats{}), highest));
        return truncate(value);
    }
    Floats level = broadcast(levels.levels[0]);
    Ints place{};
    for (size_t i = 1; i < levels.count; ++i) {
        const Mask is_above = less(broadcast(levels.bounds[i - 1]), value);
        level = select(is_above, broadcast(levels.levels[i]), level);
        place = increment(place, is_above);
    }
    value = level;
    return place;
}

// Some rows of an array, with zeros for those that are not there.
struct SomeRows {
    Floats of[vectors] = {};
    SomeRows() = default;
    SomeRows(const float *from, size_t rows) { memcpy(of, from, rows * sizeof(float)); }
    void store(float *to, size_t rows) const { memcpy(to, of, rows * sizeof(float)); }
};

// Chooses the levels of rows from `first` on: as many as fit the vectors, or the `rest`.
template <bool are_full>
KERNEL_INLINE void choose_levels_of_rows(const FedBack &block, const OrderedLevels &levels,
                                         size_t first, size_t rest = 0) {
    const size_t rows = are_full ? rows_at_once : rest;
    SomeRows errors[most_columns], scales, shifts, inverses, costs(block.costs + first, rows);
    for (size_t column = 0; column < block.columns; ++column) {
        if (column % block.group == 0) {
            const size_t start = column / block.group * block.rows + first;
            scales = SomeRows(block.scales + start, rows);
            shifts = SomeRows(block.shifts + start, rows);
            for (size_t i = 0; i < vectors; ++i) inverses.of[i] = inverse_or_zero(scales.of[i]);
        }
        const size_t start = column * block.rows + first;
        const SomeRows exact(block.exact + start, rows);
        SomeRows targets(block.targets + start, rows), sums;
        for (size_t before = 0; before < column; ++before) {
            const Floats share = broadcast(block.shares[column * block.columns + before]);
            for (size_t i = 0; i < vectors; ++i) sums.of[i] += share * errors[before].of[i];
        }
        int32_t places[rows_at_once];
        for (size_t i = 0; i < vectors; ++i) {
            targets.of[i] += sums.of[i];
            Floats value = (targets.of[i] - shifts.of[i]) * inverses.of[i];
            const Ints own = take_nearest(value, levels);
            const Floats chosen = value * scales.of[i] + shifts.of[i];
            const Floats missing = targets.of[i] - chosen;
            errors[column].of[i] = exact.of[i] - chosen;
            costs.of[i] += block.weights[column] * missing * missing;
            memcpy(places + lanes * i, &own, sizeof own);
        }
        for (size_t i = 0; i < rows; ++i) {
            block.places[start + i] = static_cast<uint8_t>(places[i]);
        }
        targets.store(block.targets + start, rows);
        errors[column].store(block.errors + start, rows);
    }
    costs.store(block.costs + first, rows);
}

void choose_levels(const FedBack &block, const OrderedLevels &levels) {
    size_t row = 0;
    for (; row + rows_at_once <= block.rows; row += rows_at_once) {
        choose_levels_of_rows<true>(block, levels, row);
    }
    if (row < block.rows) choose_levels_of_rows<false>(block, levels, row, block.rows - row);
}

}  // namespace
