// The cells that groups of elements round to, trial by trial.
//
// Inverse scales grow by the same step from one trial to the next, and an element's level with
// them. So one division gives the few trials at which it rises: lanes are elements here.
// Between them a group stays in one cell, which has the same neighbours: that is a interval.
#pragma once
#include "grid_scalar.hpp"
#include "nearest.hpp"

namespace {

constexpr float border_begins = 0.4999f;  // from a level: beyond it, rounding may decide

// The levels that elements over a scale round to, and their distances from them.
template <class Shape>
struct Rounded {
    Floats rounded, apart;

    KERNEL_INLINE explicit Rounded(Floats half_over_scale) {
        const Floats level = half_over_scale - 0.5f;  // half of ggml's value, rounded as ggml does
        const Floats inside =
            minimum(maximum(level, broadcast(0.0f)), broadcast(Shape::levels - 1.0f));
        rounded = ::nearest(inside);
        apart = absolute(inside - rounded);
    }
};

// The levels of elements under one inverse scale.
template <class Shape>
struct GridLevels {
    int32_t of[Shape::size];
    uint32_t borders = 0;  // elements so near another level that rounding may choose it

    KERNEL_INLINE GridLevels(const float *x, float inverse) {
        UNROLL
        for (int i = 0; i < Shape::size; i += lanes) {
            const Rounded<Shape> level(broadcast(inverse * 0.5f) * load(x + i));
            const Ints levels = truncate(level.rounded);
            memcpy(of + i, &levels, sizeof levels);
            borders |= movemask(less(broadcast(border_begins), level.apart)) << i;
        }
    }

    // The number of a group's cell.
    KERNEL_INLINE int cell(int group) const {
        int number = 0;
        UNROLL
        for (int i = 0; i < Shape::dimensions; ++i) {
            number = number * Shape::levels + of[group * Shape::dimensions + i];
        }
        return number;
    }

    KERNEL_INLINE bool at_border(int group) const { return any_of_group<Shape>(borders, group); }
};

// The trials at which the levels of elements rise, by one each.
template <class Rule>
class GridRises {
    using Shape = typename Rule::Shape;
    static constexpr int count = Rule::candidates, size = Shape::size;
    static constexpr int highest_level = Shape::levels - 1;
    static constexpr float middle = 2 * Shape::levels - 1, reach = count / 2 * Rule::step;

    // How often an element may rise. The highest levels lie closest, in proportion.
    static constexpr int find_most() {
        const float growth = (middle + reach) / (middle - reach);
        int most = 1;
        while (highest_level < growth * (highest_level - most)) ++most;
        return most;
    }

public:
    static constexpr int most = find_most();
    int32_t trials[most][size];  // from `count` on there are none: what is there means never
    uint32_t unsure = 0;         // elements so near a border at a trial that rounding decides

    // For inverse scales around `middle / range`.
    KERNEL_INLINE GridRises(const float *x, float range, const GridLevels<Shape> &first) {
        const float pace = 2.0f / Rule::step * range;  // trials from a level to the next, times x
        const Floats ahead = broadcast(middle / Rule::step - count / 2);
        UNROLL
        for (int i = 0; i < size; i += lanes) {
            // "Never" differs within a group, so that its counters differ too.
            const Ints places = (lane_numbers() + i) & (Shape::dimensions - 1);
            const Floats never = to_floats(places) + (count - 0.5f);
            // Elements far below the range never rise.
            const Floats apart = broadcast(pace) / maximum(load(x + i), broadcast(range * 1e-6f));
            Floats level = to_floats(load_ints(first.of + i)), nearest = broadcast(0.0f);
            UNROLL
            for (int j = 0; j < most; ++j) {
                level = level + 1.0f;
                const Floats latest = never + 1.0f * j * Shape::dimensions;
                const Mask is_level = less(level, broadcast(highest_level + 0.5f));
                const Floats place =
                    minimum(select(is_level, level * apart - ahead, latest), latest);
                const Floats before = floor(maximum(place, broadcast(0.0f)));
                nearest = maximum(nearest, absolute(place - before - 0.5f));
                const Ints trial = truncate(before) + 1;
                memcpy(trials[j] + i, &trial, sizeof trial);
            }
            unsure |= movemask(less(broadcast(0.4995f), nearest)) << i;
        }
        unsure = range > 1e-30f ? unsure | first.borders : ~0u;
    }
};

// A interval of trials in which a group stays in a cell, for as many trials as there are lanes at
// most. In one word, for one write and one read.
class CellInterval {
public:
    CellInterval() = default;
    KERNEL_INLINE CellInterval(int cell, int place, int group)
        : word_(static_cast<uint32_t>(cell) | uint64_t(place) << 32 | uint64_t(group) << 48) {}

    KERNEL_INLINE CellInterval with_trials(uint64_t trials) const {
        CellInterval interval;
        interval.word_ = word_ | trials << 56;
        return interval;
    }

    // The same, its groups numbered from `first` on.
    KERNEL_INLINE CellInterval of_member(uint64_t first) const {
        CellInterval interval;
        interval.word_ = word_ + (first << 48);
        return interval;
    }

    int cell() const { return static_cast<int>(word_); }
    int place() const { return word_ >> 32 & 0xFFFF; }  // of its first trial, among all groups'
    int group() const { return word_ >> 48 & 0xFF; }
    int trials() const { return word_ >> 56; }

private:
    uint64_t word_;
};

// All intervals of a part.
template <class Rule>
class CellIntervals {
    using Shape = typename Rule::Shape;
    using Rises = GridRises<Rule>;
    using Trials = GridTrials<Shape, Rule::candidates>;
    static constexpr int count = Rule::candidates, dimensions = Shape::dimensions;
    static constexpr int groups = Shape::groups, places = groups * count;
    static constexpr int usual = count < 20 ? 5 : 7;  // intervals of a group, mostly

public:
    KERNEL_INLINE CellIntervals(const GridPart<Shape> &part, const Trials &trials,
                                const Neighbours &grid)
        : cells_(grid.cells) {
        const GridLevels<Shape> first(part.x, trials.inverses[0]);
        const Rises rises(part.x, trials.range, first);
        for (int group = 0; group < groups; ++group) {
            Path path;
            if (any_of_group<Shape>(rises.unsure, group)) {
                follow(part, trials, group, grid.count, path);
            } else {
                path.rises[0] = first.cell(group);
                rise(rises, group, path);
            }
            add(group, path);
        }
        of_[used_] = CellInterval(0, places, groups);
    }

    template <class Work>
    KERNEL_INLINE void each(Work work) const {
        for (int i = 0; i < used_; ++i) {
            work(of_[i].with_trials(of_[i + 1].place() - of_[i].place()));
        }
    }

private:
    // Trials from which on a group is in another cell, and by how much its number is higher there.
    struct Path {
        static constexpr int room = (count + Rises::most * dimensions + lanes) / lanes * lanes;
        uint64_t turns = 1;
        static_assert(count + Rises::most * dimensions <= 64 && room >= Trials::used, "all fit");
        int32_t rises[room];

        KERNEL_INLINE Path() {
            const Ints zeros = broadcast(0);
            UNROLL
            for (int i = 0; i < room; i += lanes) memcpy(rises + i, &zeros, sizeof zeros);
        }
    };

    // No element is at a border at a trial, which only `follow` looks at.
    static KERNEL_INLINE void rise(const Rises &rises, int group, Path &path) {
        int step = 1;
        UNROLL
        for (int i = dimensions - 1; i >= 0; --i, step *= Shape::levels) {
            UNROLL
            for (int j = 0; j < rises.most; ++j) {
                const int trial = rises.trials[j][group * dimensions + i];
                path.rises[trial] += step;
                path.turns |= uint64_t{1} << trial;
            }
        }
    }

    // The same trial by trial, by the cells that the group's elements round to.
    static KERNEL_NOINLINE void follow(const GridPart<Shape> &part, const Trials &trials, int group,
                                       int border_cells, Path &path) {
        int32_t cells[1 + Trials::used] = {};  // from the second on
        for (int trial = 0; trial < count; trial += lanes) {
            const Floats half = load(trials.inverses + trial) * 0.5f;
            Floats number = broadcast(0.0f), apart = broadcast(0.0f);
            UNROLL
            for (int i = 0; i < dimensions; ++i) {
                const Rounded<Shape> level(half * part.x[group * dimensions + i]);
                number = number * static_cast<float>(Shape::levels) + level.rounded;
                apart = maximum(apart, level.apart);
            }
            const Mask border = less(broadcast(border_begins), apart);
            const Ints some =
                truncate(number) + select(border, broadcast(border_cells), broadcast(0));
            memcpy(cells + 1 + trial, &some, sizeof some);
        }
        for (int trial = 0; trial < count; trial += lanes) {
            const Ints rises = load_ints(cells + 1 + trial) - load_ints(cells + trial);
            memcpy(path.rises + trial, &rises, sizeof rises);
            path.turns |= uint64_t{movemask(equal(rises, broadcast(0))) ^ all_lanes} << trial;
        }
    }

    KERNEL_INLINE void add(int group, const Path &path) {
        constexpr uint32_t all = static_cast<uint32_t>((uint64_t{1} << count) - 1);
        uint32_t turns = static_cast<uint32_t>(path.turns) & all;
        // What is as many trials as there are lanes behind the last turn, is a turn too.
        uint32_t near = turns;
        UNROLL
        for (int step = 1; step < lanes; step *= 2) near |= near << step;
        uint32_t cuts = ~near & near << 1 & all;
        UNROLL
        for (int some = lanes; some < count; some += lanes) {
            turns |= cuts;
            cuts = cuts << lanes & ~near & all;
        }
        CellInterval *end = of_ + used_;
        used_ += __builtin_popcount(turns);
        int number = 0;
        // Those that are not there, the next group overwrites.
        UNROLL
        for (int i = 0; i < usual; ++i) add(group, path, turns, number, end++);
        while (turns != 0) add(group, path, turns, number, end++);
    }

    KERNEL_INLINE void add(int group, const Path &path, uint32_t &turns, int &number,
                           CellInterval *interval) const {
        const int trial = __builtin_ctz(turns | 1u << count);
        number += path.rises[trial];
        *interval = CellInterval(number, group * count + trial, group);
        __builtin_prefetch(cells_ + number);
        turns &= turns - 1;
    }

    const Cell *cells_;
    int used_ = 0;
    CellInterval of_[places + 1];
};

}  // namespace
