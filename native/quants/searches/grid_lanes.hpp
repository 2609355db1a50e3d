// The points of a grid nearest to elements, sought with a trial per lane.
//
// From one scale to the next, a group of elements mostly rounds to the same cell. So trials come
// in runs that have the same neighbours; a window is a run, or as much of it as there are lanes.
#pragma once
#include "contest.hpp"
#include "grid_terms.hpp"
#include "nearest.hpp"

namespace {

constexpr uint32_t all_lanes = static_cast<uint32_t>((uint64_t{1} << lanes) - 1);

template <class Shape>
class LanesGridSearch {
    static constexpr int dimensions = Shape::dimensions, groups = Shape::groups;
    static constexpr int spread = Shape::levels == 3 ? 4 : 8;  // table entries of an element
    using Terms = typename TermsOf<Shape, Shape::levels>::Type;

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
        for (int group = 0; group < groups; ++group) {
            end = add_windows<Count>(trials.cells[group], group, end);
        }
        static_assert(GridTrials<Shape, Count>::room <= level_stride, "rows have room for all");
        const Terms terms(part_, trials.scales, trials.used);
        for (const Window *window = windows; window < end; ++window) {
            const Ints codes = nearest(terms, *window);
            // What is too much, the next window overwrites.
            memcpy(trials.codes[window->group] + window->trial, &codes, sizeof codes);
        }
        return true;
    }

    template <int Count>
    void sum_up(GridTrials<Shape, Count> &trials) const {
        constexpr int vectors = GridTrials<Shape, Count>::used / lanes;
        Floats products[vectors] = {}, squares[vectors] = {};
        for (int group = 0; group < groups; ++group) {
            UNROLL
            for (int i = 0; i < dimensions; ++i) {
                const int at = group * dimensions + i;
                const Floats weight = splat(part_.weights[at]);
                const Floats weighted = splat(part_.weights[at] * part_.x[at]);
                UNROLL
                for (int v = 0; v < vectors; ++v) {
                    const Floats value = values_in(load_ints(trials.codes[group] + v * lanes), i);
                    products[v] = products[v] + weighted * value;
                    squares[v] = squares[v] + weight * value * value;
                }
            }
        }
        memcpy(trials.products, products, sizeof products);
        memcpy(trials.squares, squares, sizeof squares);
    }

    // Which trials may score best; raises `best` to what none of the others reaches.
    template <int Count>
    uint32_t contenders(const GridTrials<Shape, Count> &trials, float &best) const {
        Contest contest;
        Floats squared[Count / lanes + 1];
        UNROLL
        for (int i = 0; i < Count; i += lanes) {
            const Floats product = load(trials.products + i);
            const Mask real = above(splat(Count - i), lane_numbers());
            squared[i / lanes] = select(real, product * product, splat(0.0f));
            contest.offer(squared[i / lanes], load(trials.squares + i));
        }
        best = contest.reachable(best);
        uint64_t found = 0;
        UNROLL
        for (int i = 0; i < Count; i += lanes) {
            const Floats bound = splat(best) * load(trials.squares + i);
            found |= uint64_t{lanes_in(less(bound, squared[i / lanes]))} << i;
        }
        return static_cast<uint32_t>(found);
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
            const uint32_t *neighbours = grid_.codes + cells[group]->first;
            const LevelTables<dimensions, spread> tables([&](int i, Floats levels) {
                const int at = group * dimensions + i;
                const Floats apart = splat(scale) * (levels * 2.0f + 1.0f) - part_.x[at];
                return splat(part_.roots[at]) * apart * apart;
            });
            codes[group] = tables.nearest(neighbours, cells[group]->count).code;
        }
        return true;
    }

private:
    // A cell's neighbours, sought for a group under the trials from one on.
    struct Window {
        uint32_t first;
        uint16_t count;
        uint8_t group, trial;
    };

    // Whether rounding is exact with the highest inverse, and distances finite with its scale.
    bool suits(float inverse, float scale) const {
        return inverse * greatest_ < 2 * nearest_bound && scale < 1e15f;
    }

    static KERNEL_INLINE Floats values_in(Ints codes, int place) {
        const Ints levels = shift_right(codes, Shape::level_bits * place);
        if constexpr (spread == 4) {
            return pick_of_four(to_floats((lane_numbers() & 3) * 2 + 1), levels);
        } else {
            return to_floats((levels & 7) * 2 + 1);
        }
    }

    template <int Count>
    KERNEL_INLINE Window *add_windows(const int32_t *cells, int group, Window *end) const {
        uint64_t starts = uint64_t{1} << Count;
        UNROLL
        for (int i = 1; i < Count; i += lanes) {
            const Mask same = equal(load_ints(cells + i), load_ints(cells + i - 1));
            starts |= uint64_t{lanes_in(same) ^ all_lanes} << i;
        }
        for (int trial = 0; trial < Count;) {
            const Cell &cell = grid_.cells[cells[trial]];
            __builtin_prefetch(grid_.codes + cell.first);
            *end++ = {cell.first, cell.count, static_cast<uint8_t>(group),
                      static_cast<uint8_t>(trial)};
            const int next = trial + 1 + __builtin_ctzll(starts >> trial >> 1);
            trial = minimum(trial + lanes, next);
        }
        return end;
    }

    // The codes of the first of the nearest, by trial.
    KERNEL_APART Ints nearest(const Terms &terms, Window window) const {
        const auto own = terms.window(window.group, window.trial);
        const uint32_t *code = grid_.codes + window.first, *end = code + window.count;
        Floats least = own.distances(grid_.steps[*code >> 16]);
        Ints found = splat(static_cast<int32_t>(*code));
        while (++code < end) {
            const Floats now = own.distances(grid_.steps[*code >> 16]);
            found = select(less(now, least), splat(static_cast<int32_t>(*code)), found);
            least = minimum(now, least);
        }
        return found;
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
