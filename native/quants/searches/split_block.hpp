// From a super-block of 256 elements to parts with three levels, for IQ1_S and IQ1_M: points of
// the grid of 2048, a scale for each part and which of its groups are lowered.
//
// A type's Rule says
//   size, Sums       elements of a part, and how their sums depend on what is lowered;
//   least            what highest element makes a part more than zeros;
//   lowered          whether a group of a part is lowered by a choice;
//   spread, weighs_by_mean   what grid_block.hpp reads.
#pragma once
#include "../types/grid_codes.hpp"
#include "grid_block.hpp"
#include "split.hpp"

namespace {

template <int Size>
struct SplitBlock {
    static constexpr int parts = superblock_size / Size;
    float weights[superblock_size];
    float scales[parts] = {};
    int choices[parts] = {};
    uint16_t points[superblock_size / 8] = {};
    float highest_scale = 0.0f;

    // The level of a part's scale, from 0 to 7.
    int scale_level(int part, float inverse) const {
        const int level = nearest_int(0.5f * (inverse * scales[part] - 1.0f));
        return maximum(0, minimum(7, level));
    }
};

KERNEL_INLINE const float (&values_of(bool lowered))[3] {
    return lowered ? lowered_values : raised_values;
}

template <class Rule>
class SplitBlockFit {
    static constexpr int size = Rule::size, groups = size / 8;
    using Sums = typename Rule::Sums;

public:
    using Content = SplitBlock<size>;

    SplitBlockFit(const float *x, const float *importance, float mean_square,
                  const Neighbours &grid)
        : x_(x), importance_(importance), mean_square_(mean_square), grid_(grid) {}

    // Returns nothing_wrong, or an element of the part at which ggml aborts, or reads behind the
    // tensor: it does if no distance to a neighbour is finite.
    int64_t run(Content &block) {
        block_ = &block;
        weigh_on_grid<Rule>(x_, importance_, mean_square_, superblock_size, block.weights);
        for (int i = 0; i < block.parts; ++i) {
            if (!fit(i)) return i * size + suspect(x_ + i * size, size);
        }
        return nothing_wrong;
    }

private:
    bool fit(int i) {
        const float *x = x_ + i * size;
        float highest = absolute(x[0]);
        for (int j = 1; j < size; ++j) highest = maximum(highest, absolute(x[j]));
        if (highest < Rule::least) return true;
        int order[size];
        Split split = find_split(i, highest, order);
        if (split.choice < 0) return true;
        uint8_t levels[size];
        for (int j = 0; j < size; ++j) {
            const int level = (j >= split.first) + (j >= split.second);
            levels[order[j]] = static_cast<uint8_t>(split.scale < 0.0f ? 2 - level : level);
        }
        if (split.scale < 0.0f) {
            split.scale = -split.scale;
            split.choice = Sums::choices - 1 - split.choice;
        }
        return place(i, levels, split);
    }

    Split find_split(int i, float highest, int *order) const {
        const float *x = x_ + i * size, *weights = block_->weights + i * size;
        if constexpr (portable) {
            sort_order<size>(x, order);
            return best_split<size>(Sums(x, weights, order), highest);
        } else {
            sort_order_in_lanes<size>(x, order);
            return best_split_in_lanes<size>(Sums(x, weights, order), highest);
        }
    }

    // Moves the part's groups to points of the grid.
    bool place(int i, const uint8_t *levels, Split split) {
        bool all_on_grid = true;
        for (int group = 0; group < groups; ++group) {
            int number = 0;
            for (int j = 0; j < 8; ++j) number = number * 3 + levels[8 * group + j];
            const Cell &cell = whole_cell(grid_, number);
            uint32_t code = grid_.codes[cell.first];
            if (!cell.on_grid) {
                all_on_grid = false;
                const bool lowered = Rule::lowered(split.choice, group);
                if (!nearest(cell, i * size + 8 * group, split.scale, lowered, code)) return false;
            }
            block_->points[i * groups + group] = static_cast<uint16_t>(code >> 16);
        }
        if (!all_on_grid) split.scale = refined(i, split);
        block_->scales[i] = split.scale;
        block_->choices[i] = split.choice;
        block_->highest_scale = maximum(block_->highest_scale, split.scale);
        return split.scale >= 0.0f;
    }

    // iq1_find_best_neighbour2 of ggml.
    bool nearest(const Cell &cell, int index, float scale, bool lowered, uint32_t &point) const {
        const float(&values)[3] = values_of(lowered);
        Neighbour neighbour;
        if constexpr (portable) {
            neighbour = nearest_in_turn(cell, index, scale, values);
        } else {
            neighbour = nearest_in_lanes(cell, index, scale, values);
        }
        point = neighbour.code;
        return neighbour.distance < largest_float;
    }

    Neighbour nearest_in_turn(const Cell &cell, int index, float scale, const float *values) const {
        Neighbour nearest = {0, largest_float};
        for (uint32_t i = cell.first; i < cell.first + cell.count; ++i) {
            float distance = 0.0f;
            for (int j = 0; j < 8; ++j) {
                const float apart = scale * values[grid_.codes[i] >> 2 * j & 3] - x_[index + j];
                distance += block_->weights[index + j] * apart * apart;
            }
            if (distance < nearest.distance) nearest = {grid_.codes[i], distance};
        }
        return nearest;
    }

    Neighbour nearest_in_lanes(const Cell &cell, int index, float scale,
                               const float *values) const {
        Floats of_level;
        for (int i = 0; i < lanes; ++i) of_level[i] = values[minimum(i % 4, 2)];
        const LevelTables<8, 4> tables([&](int i, Floats) {
            const Floats apart = broadcast(scale) * of_level - x_[index + i];
            return broadcast(block_->weights[index + i]) * apart * apart;
        });
        return tables.nearest(grid_.codes + cell.first, cell.count);
    }

    float refined(int i, const Split &split) const {
        float product = 0.0f, square = 0.0f;
        for (int j = 0; j < size; ++j) {
            const int index = i * size + j;
            const bool lowered = Rule::lowered(split.choice, j / 8);
            const float value =
                values_of(lowered)[iq1_codes[block_->points[index / 8]] >> index % 8 * 2 & 3];
            product += block_->weights[index] * value * x_[index];
            square += block_->weights[index] * value * value;
        }
        return product > 0.0f && square > 0.0f ? product / square : split.scale;
    }

    const float *x_, *importance_;
    const float mean_square_;
    const Neighbours &grid_;
    Content *block_;
};

}  // namespace
