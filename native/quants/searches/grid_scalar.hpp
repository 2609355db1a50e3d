// The points of a grid nearest to elements: iq2_find_best_neighbour and iq3_find_best_neighbour
// of ggml, and the sums that measure how well points fit.
#pragma once
#include "../lane.hpp"
#include "../neighbours.hpp"

namespace {

// Parts of `Size` elements, in groups of as many as a point has; levels l stand for 2 * l + 1.
template <int Size, int Dimensions, int Levels>
struct GridShape {
    static constexpr int size = Size, dimensions = Dimensions, levels = Levels;
    static constexpr int groups = Size / Dimensions;
    static constexpr int level_bits = 16 / Dimensions;  // of a code
};

// Elements that share a scale, without their signs.
template <class Shape>
struct GridPart {
    float x[Shape::size];
    float weights[Shape::size];
    float roots[Shape::size];  // of the weights: ggml looks for the nearest point with these
};

// Scales to try, by their inverses around the highest value over `range`, and what comes of it:
// each group's cells and the codes of the points found there, group by group. Of scales, cells and
// codes a vector may be read or written from any trial on.
//
// Trials in a row that find the same points make one column, which has weighted sums of x * value
// and value * value.
template <class Shape, int Count>
struct GridTrials {
    static constexpr int used = (Count + lanes - 1) / lanes * lanes;  // whole vectors
    static constexpr int room = used + lanes;
    float range, inverses[used], scales[room];
    int32_t cells[Shape::groups * Count + lanes];
    uint32_t codes[Shape::groups * Count + lanes + 1];
    int columns;
    int32_t last[room];  // trials of columns
    uint32_t column_codes[Shape::groups][room];
    float products[used], squares[used];

    int first(int column) const { return column == 0 ? 0 : last[column - 1] + 1; }
};

// Whether any bit is set of those that stand for a group's elements.
template <class Shape>
KERNEL_INLINE bool any_of_group(uint32_t elements, int group) {
    return (elements >> group * Shape::dimensions & ((1u << Shape::dimensions) - 1)) != 0;
}

template <class Shape>
KERNEL_INLINE int level_in(uint32_t code, int place) {
    return static_cast<int>(code >> Shape::level_bits * place & (Shape::levels == 3 ? 3 : 7));
}

template <class Shape>
struct GridSums {
    float product = 0.0f, square = 0.0f;
};

template <class Rule>
class ScalarGridSearch {
    using Shape = typename Rule::Shape;
    static constexpr int count = Rule::candidates;

public:
    GridTrials<Shape, count> trials;

    // Finds points for all trials; false where all are too far away for a float.
    bool begin(const GridPart<Shape> &part, const Neighbours &grid) {
        part_ = &part;
        grid_ = &grid;
        for (int trial = 0; trial < count; ++trial) {
            for (int group = 0; group < Shape::groups; ++group) {
                const int cell = cell_of(trials.inverses[trial], group);
                trials.cells[group * count + trial] = cell;
                uint32_t &code = trials.codes[group * count + trial];
                if (!nearest(grid.cells[cell], trials.scales[trial], group, code)) return false;
            }
        }
        return true;
    }

    void sum_up() {
        trials.columns = count;
        for (int trial = 0; trial < count; ++trial) {
            uint32_t codes[Shape::groups];
            for (int i = 0; i < Shape::groups; ++i) codes[i] = trials.codes[i * count + trial];
            const GridSums<Shape> sums = this->sums(codes);
            trials.last[trial] = trial;
            trials.products[trial] = sums.product;
            trials.squares[trial] = sums.square;
        }
    }

    // Finds the columns that may score best.
    uint32_t contenders(float &) const { return static_cast<uint32_t>((uint64_t{1} << count) - 1); }

    // Finds the points of the requested groups for one scale.
    bool find_again(float scale, uint32_t requested, uint32_t (&codes)[Shape::groups]) const {
        for (int group = 0; group < Shape::groups; ++group) {
            if (!(requested >> group & 1)) continue;
            const Cell &cell = grid_->cells[cell_of(1.0f / scale, group)];
            if (!nearest(cell, scale, group, codes[group])) return false;
        }
        return true;
    }

    // The weighted sums of all elements' points.
    GridSums<Shape> sums(const uint32_t (&codes)[Shape::groups]) const {
        GridSums<Shape> sums;
        for (int i = 0; i < Shape::size; ++i) {
            const uint32_t code = codes[i / Shape::dimensions];
            const float value = 2 * level_in<Shape>(code, i % Shape::dimensions) + 1;
            sums.product += part_->weights[i] * part_->x[i] * value;
            sums.square += part_->weights[i] * value * value;
        }
        return sums;
    }

private:
    int cell_of(float inverse, int group) const {
        int number = 0;
        for (int i = 0; i < Shape::dimensions; ++i) {
            const float x = part_->x[group * Shape::dimensions + i];
            // ggml's rounding to a level, with nearest_int's results for any argument.
            const int level = nearest_int(0.5f * (inverse * x - 1.0f));
            number = number * Shape::levels + maximum(minimum(level, Shape::levels - 1), 0);
        }
        return grid_->count + number;
    }

    bool nearest(const Cell &cell, float scale, int group, uint32_t &result) const {
        const uint32_t *codes = grid_->codes + cell.first;
        result = codes[0];
        if (cell.on_grid) return true;
        float least = largest_float;
        for (int i = 0; i < cell.count; ++i) {
            const float distance = distance_of(codes[i], scale, group);
            if (distance < least) {
                least = distance;
                result = codes[i];
            }
        }
        return least < largest_float;
    }

    float distance_of(uint32_t code, float scale, int group) const {
        const float *x = part_->x + group * Shape::dimensions;
        const float *roots = part_->roots + group * Shape::dimensions;
        float sum = 0.0f;
        for (int i = 0; i < Shape::dimensions; ++i) {
            const float value = 2 * level_in<Shape>(code, i) + 1;
            const float apart = scale * value - x[i];
            sum += roots[i] * apart * apart;
        }
        return sum;
    }

    const GridPart<Shape> *part_;
    const Neighbours *grid_;
};

}  // namespace
