// The points of a grid nearest to elements, sought with a trial per lane.
//
// From one scale to the next, a group of elements mostly rounds to the same cell. So trials come
// in runs that have the same neighbours; a window is a run, or as much of it as there are lanes.
#pragma once
#include "contest.hpp"
#include "grid_windows.hpp"

namespace {

constexpr uint32_t all_lanes = static_cast<uint32_t>((uint64_t{1} << lanes) - 1);

template <class Shape>
class LanesGridSearch {
    static constexpr int dimensions = Shape::dimensions, groups = Shape::groups;
    static constexpr int spread = Shape::levels == 3 ? 4 : 8;  // table entries of an element
    using WindowSearch = typename WindowSearchOf<Shape, Shape::levels>::Type;

public:
    // Whether no sum overflows and no NaN gets in the way.
    static bool suits(const GridPart<Shape> &part) {
        const Floats bound = splat(1e10f), zero = splat(0.0f);
        uint32_t strange = 0;
        UNROLL
        for (int i = 0; i < Shape::size; i += lanes) {
            const Floats weights = load(part.weights + i);
            const Mask fits = both(less(absolute(load(part.x + i)), bound), less(weights, bound));
            strange |= lanes_in(both(fits, opposite(less(weights, zero)))) ^ all_lanes;
        }
        return strange == 0;
    }

    LanesGridSearch(const GridPart<Shape> &part, const Neighbours &grid)
        : part_(part), grid_(grid) {
        Floats least = splat(0.0f);
        UNROLL
        for (int i = 0; i < Shape::size; i += lanes) {
            least = minimum(-absolute(load(part.x + i)), least);
        }
        greatest_ = -lowest_lane(least);
    }

    // Finds points for all trials; false where rounding leaves what lanes can do.
    template <int Count>
    bool find(GridTrials<Shape, Count> &trials) const {
        if (!suits(trials.inverses[Count - 1], trials.scales[0])) return false;
        for (int group = 0; group < groups; ++group) {
            UNROLL
            for (int i = 0; i < Count; i += lanes) {
                const Ints cells = cells_of(load(trials.inverses + i), group);
                memcpy(trials.cells[group] + i, &cells, sizeof cells);
            }
        }
        Window windows[groups * Count];
        Window *end = windows;
        for (int group = 0; group < groups; ++group) end = add_windows(trials, group, end);
        static_assert(GridTrials<Shape, Count>::room <= level_stride, "rows have room for all");
        const WindowSearch search(part_, trials.scales, Count);
        for (const Window *window = windows; window < end; ++window) {
            find_points(search, *window, trials);
        }
        return true;
    }

    template <int Count>
    void sum_up(GridTrials<Shape, Count> &trials) const {
        make_columns(trials);
        for (int first = 0; first < trials.columns; first += lanes) {
            Floats product = splat(0.0f), square = product;
            UNROLL
            for (int i = 0; i < Shape::size; ++i) {
                const Ints codes = load_ints(trials.column_codes[i / dimensions] + first);
                const Floats value = values_in(codes, i % dimensions);
                product = product + splat(part_.weights[i] * part_.x[i]) * value;
                square = square + splat(part_.weights[i]) * value * value;
            }
            store(trials.products + first, product);
            store(trials.squares + first, square);
        }
    }

    // Which columns may score best; raises `best` to what none of the others reaches.
    template <int Count>
    uint32_t contenders(const GridTrials<Shape, Count> &trials, float &best) const {
        Contest contest;
        for (int i = 0; i < trials.columns; i += lanes) {
            const Floats product = load(trials.products + i);
            contest.offer(product * product, load(trials.squares + i));
        }
        best = contest.reachable(best);
        uint32_t found = 0;
        for (int i = 0; i < trials.columns; i += lanes) {
            const Floats product = load(trials.products + i);
            const Floats bound = splat(best) * load(trials.squares + i);
            found |= lanes_in(less(bound, product * product)) << i;
        }
        return found;
    }

    // Finds the points of the wanted groups for one scale.
    bool find_again(float scale, uint32_t wanted, uint32_t (&codes)[groups]) const {
        const float inverse = 1.0f / scale;
        if (!suits(inverse, scale)) return false;
        const Cell *cells[groups];
        for (int group = 0; group < groups; ++group) {
            cells[group] = &grid_.cells[cells_of(splat(inverse), group)[0]];
        }
        for (; wanted != 0; wanted &= wanted - 1) {
            const int group = __builtin_ctz(wanted);
            codes[group] = nearest(scale, group, grid_.codes + cells[group]->first,
                                   cells[group]->count);
        }
        return true;
    }

private:
    // Whether rounding is exact with the highest inverse, and distances finite with its scale.
    bool suits(float inverse, float scale) const {
        return inverse * greatest_ < 2 * nearest_bound && scale < 1e10f;
    }

    static KERNEL_INLINE Floats values_in(Ints codes, int place) {
        const Ints levels = shift_right(codes, Shape::level_bits * place);
        if constexpr (spread == 4) {
            return pick_of_four(to_floats((lane_numbers() & 3) * 2 + 1), levels);
        } else {
            return to_floats((levels & 7) * 2 + 1);
        }
    }

    // A run of trials that has but one neighbour gets it at once.
    template <int Count>
    KERNEL_INLINE Window *add_windows(GridTrials<Shape, Count> &trials, int group,
                                      Window *end) const {
        const int32_t *cells = trials.cells[group];
        uint64_t starts = uint64_t{1} << Count;
        UNROLL
        for (int i = 1; i < Count; i += lanes) {
            const Mask same = equal(load_ints(cells + i), load_ints(cells + i - 1));
            starts |= uint64_t{lanes_in(same) ^ all_lanes} << i;
        }
        for (int trial = 0; trial < Count;) {
            const Cell &cell = grid_.cells[cells[trial]];
            const int start = trial, next = trial + 1 + __builtin_ctzll(starts >> trial >> 1);
            trial = minimum(trial + lanes, next);
            *end = {cell.first, cell.count, static_cast<uint8_t>(group),
                    static_cast<uint8_t>(start), static_cast<uint8_t>(trial - start)};
            end += cell.count > 1;
            // What is too much, what follows overwrites.
            const Ints codes = splat(static_cast<int32_t>(grid_.codes[cell.first]));
            memcpy(trials.codes[group] + start, &codes, sizeof codes);
        }
        return end;
    }

    template <int Count>
    KERNEL_APART void find_points(const WindowSearch &search, Window window,
                                  GridTrials<Shape, Count> &trials) const {
        uint32_t unsure;
        const Ints found = search.nearest(grid_, window, unsure);
        uint32_t *codes = trials.codes[window.group] + window.trial;
        const Mask own = above(splat(window.trials), lane_numbers());
        const Ints mixed = select(own, found, load_ints(codes));
        memcpy(codes, &mixed, sizeof mixed);
        for (unsure &= lanes_in(own); unsure != 0; unsure &= unsure - 1) {
            const int i = __builtin_ctz(unsure);
            codes[i] = nearest(trials.scales[window.trial + i], window.group,
                               grid_.codes + window.first, window.count);
        }
    }

    // The code of the first of the nearest, by distances added up as ggml does.
    KERNEL_APART uint32_t nearest(float scale, int group, const uint32_t *neighbours,
                                  int count) const {
        const LevelTables<dimensions, spread> tables([&](int i, Floats levels) {
            const int at = group * dimensions + i;
            const Floats apart = splat(scale) * (levels * 2.0f + 1.0f) - part_.x[at];
            return splat(part_.roots[at]) * apart * apart;
        });
        return tables.nearest(neighbours, count).code;
    }

    template <int Count>
    KERNEL_APART void make_columns(GridTrials<Shape, Count> &trials) const {
        uint32_t starts = 1;
        UNROLL
        for (int i = 1; i < Count; i += lanes) {
            Mask same = equal(splat(0), splat(0));
            for (const auto &codes : trials.codes) {
                same = both(same, equal(load_ints(codes + i), load_ints(codes + i - 1)));
            }
            starts |= ((lanes_in(same) ^ all_lanes) << i) & ((1u << Count) - 1);
        }
        const uint32_t end = 1u << Count;
        trials.columns = __builtin_popcount(starts);
        for (int first = 0; first < trials.columns; first += lanes) {
            UNROLL
            for (int i = first; i < first + lanes; ++i) {
                trials.first[i] = minimum(__builtin_ctz(starts | end), Count - 1);
                starts &= starts - 1;
                trials.last[i] = __builtin_ctz(starts | end) - 1;
            }
            for (int group = 0; group < groups; ++group) {
                UNROLL
                for (int i = first; i < first + lanes; ++i) {
                    trials.column_codes[group][i] = trials.codes[group][trials.first[i]];
                }
            }
        }
    }

    // The cells that a group's elements round to.
    KERNEL_INLINE Ints cells_of(Floats inverse, int group) const {
        const Floats half = inverse * 0.5f;
        Floats number = splat(0.0f), apart = splat(0.0f);
        UNROLL
        for (int i = 0; i < dimensions; ++i) {
            const Floats x = splat(part_.x[group * dimensions + i]);
            const Floats level = half * x - 0.5f;  // half of ggml's, and so is what it rounds
            const Floats inside = minimum(maximum(level, splat(0.0f)), splat(Shape::levels - 1.0f));
            const Floats rounded = ::nearest(inside);
            number = number * static_cast<float>(Shape::levels) + rounded;
            apart = maximum(apart, absolute(inside - rounded));
        }
        // Two points on either side of a border may be as near as each other, but for rounding:
        // no neighbour is idle there.
        const Mask border = less(splat(0.4999f), apart);
        return truncate(number) + select(border, splat(grid_.count), splat(0));
    }

    const GridPart<Shape> &part_;
    const Neighbours &grid_;
    float greatest_ = 0.0f;
};

}  // namespace
