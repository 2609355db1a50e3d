// The points of a grid nearest to elements: iq2_find_best_neighbour and iq3_find_best_neighbour
// of ggml, and the sums that tell how well points fit.
#pragma once
#include "../lane.hpp"
#include "../neighbours.hpp"
#include "../types/legacy.hpp"

namespace {

// Parts of `Size` elements, in groups of as many as a point has; levels l stand for 2 * l + 1.
template <int Size, int Dimensions, int Levels>
struct GridShape {
    static constexpr int size = Size, dimensions = Dimensions, levels = Levels;
    static constexpr int groups = Size / Dimensions;
};

// Elements that share a scale, without their signs.
template <class Shape>
struct GridPart {
    float x[Shape::size];
    float weights[Shape::size];
    float roots[Shape::size];  // of the weights: ggml looks for the nearest point with these
};

// Scales to try, and what comes of it: entries of the neighbour lists by group, which groups were
// on the grid, and the weighted sums of x * level and level * level.
template <class Shape, int Count>
struct GridTrials {
    static constexpr int used = (Count + lanes - 1) / lanes * lanes;  // whole vectors
    static constexpr int places = used <= 4 ? 4 : used <= 8 ? 8 : used <= 16 ? 16 : 32;
    float inverses[places], scales[places];
    uint32_t entries[Shape::groups * places];
    uint8_t on_grid[places] = {};
    float products[places], squares[places];

    uint32_t &entry(int group, int trial) { return entries[group * places + trial]; }
};

KERNEL_INLINE int level_in(uint32_t code, int place, int levels) {
    return static_cast<int>(code >> 4 * place & (levels == 3 ? 3 : 7));
}

// ggml's rounding to a level, whatever nearest_int makes of its argument.
KERNEL_INLINE int rounded_level(float inverse, float x, int levels) {
    return maximum(minimum(nearest_int(0.5f * (inverse * x - 1.0f)), levels - 1), 0);
}

template <class Shape>
class ScalarGridSearch {
public:
    ScalarGridSearch(const GridPart<Shape> &part, const Neighbours &grid)
        : part_(part), grid_(grid) {}

    // Finds the points of the wanted groups; false where all are too far away for a float.
    template <int Count>
    bool find(GridTrials<Shape, Count> &trials, uint32_t wanted) const {
        for (int trial = 0; trial < Count; ++trial) {
            for (int group = 0; group < Shape::groups; ++group) {
                if (wanted >> group & 1 && !find_one(trials, trial, group)) return false;
            }
        }
        return true;
    }

    template <int Count>
    void sum_up(GridTrials<Shape, Count> &trials) const {
        for (int trial = 0; trial < Count; ++trial) {
            float product = 0.0f, square = 0.0f;
            for (int i = 0; i < Shape::size; ++i) {
                const int group = i / Shape::dimensions, place = i % Shape::dimensions;
                const uint32_t code = grid_.codes[trials.entry(group, trial)];
                const float value = 2 * level_in(code, place, Shape::levels) + 1;
                product += part_.weights[i] * part_.x[i] * value;
                square += part_.weights[i] * value * value;
            }
            trials.products[trial] = product;
            trials.squares[trial] = square;
        }
    }

private:
    template <int Count>
    bool find_one(GridTrials<Shape, Count> &trials, int trial, int group) const {
        const Cell cell = cell_of(trials.inverses[trial], group);
        trials.on_grid[trial] |= static_cast<uint8_t>(cell.on_grid() << group);
        uint32_t &entry = trials.entry(group, trial);
        entry = cell.first();
        return cell.on_grid() || nearest(cell, trials.scales[trial], group, entry);
    }

    Cell cell_of(float inverse, int group) const {
        int number = 0;
        for (int i = 0; i < Shape::dimensions; ++i) {
            const float x = part_.x[group * Shape::dimensions + i];
            number = number * Shape::levels + rounded_level(inverse, x, Shape::levels);
        }
        return grid_.whole_cell(number);
    }

    bool nearest(const Cell &cell, float scale, int group, uint32_t &found) const {
        const int list_lanes = portable ? 1 : lanes;
        float least = largest_float;
        for (int i = 0; i < cell.chunks() * list_lanes; ++i) {
            const uint32_t entry = cell.first() + i % cell.chunks() * list_lanes + i / cell.chunks();
            const float distance = distance_of(grid_.codes[entry], scale, group);
            if (distance < least) {
                least = distance;
                found = entry;
            }
        }
        return least < largest_float;
    }

    float distance_of(uint32_t code, float scale, int group) const {
        const float *x = part_.x + group * Shape::dimensions;
        const float *roots = part_.roots + group * Shape::dimensions;
        float sum = 0.0f;
        for (int i = 0; i < Shape::dimensions; ++i) {
            const float value = 2 * level_in(code, i, Shape::levels) + 1;
            const float apart = scale * value - x[i];
            sum += roots[i] * apart * apart;
        }
        return sum;
    }

    const GridPart<Shape> &part_;
    const Neighbours &grid_;
};

}  // namespace
