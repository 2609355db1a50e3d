// Finds the points of a grid nearest to elements, with a trial per lane.
//
// From one scale to the next, a group of elements mostly rounds to the same cell. So trials come
// in runs that have the same neighbours. Those with a choice are windows, and are gathered from a
// team of parts, so that windows of the same length are many in a row.
#pragma once
#include "contest.hpp"
#include "grid_runs.hpp"
#include "grid_windows.hpp"

namespace {

template <class Rule>
class LanesGridSearch {
    using Shape = typename Rule::Shape;
    using Trials = GridTrials<Shape, Rule::candidates>;
    static constexpr int count = Rule::candidates;
    static constexpr int dimensions = Shape::dimensions, groups = Shape::groups;
    static constexpr int spread = Shape::levels == 3 ? 4 : 8;  // table entries of an element
    static constexpr bool has_steps = Shape::levels == 3;
    using WindowSearch = typename WindowSearchOf<Shape, Shape::levels <= lanes>::Type;

public:
    // Space for the searches of a team of parts.
    template <int Members>
    using TeamWindows = Windows<Members * groups * count>;

    Trials trials;

    // Finds cells for all trials, and windows for `number` of a team; false where rounding,
    // overflow or a NaN leave what lanes can do.
    template <int Room>
    bool begin(const GridPart<Shape> &part, const Neighbours &grid, int number,
               Windows<Room> &windows) {
        part_ = &part;
        grid_ = &grid;
        unsure_ = 0;
        const Floats bound = splat(1e10f), zero = splat(0.0f);
        Floats greatest = zero;
        uint32_t strange = 0;
        UNROLL
        for (int i = 0; i < Shape::size; i += lanes) {
            const Floats weights = load(part.weights + i), x = load(part.x + i);
            const Mask fits = both(less(absolute(x), bound), less(weights, bound));
            strange |= lanes_in(both(fits, opposite(less(weights, zero)))) ^ all_lanes;
            greatest = maximum(greatest, absolute(x));
            store(weighted_ + i, weights * x);
        }
        greatest_ = highest_lane(greatest);
        if (strange != 0 || !suits(trials.inverses[count - 1], trials.scales[0])) return false;
        const GridRuns<Rule> runs(part, trials, grid);
        search_.prepare(part, grid, trials.scales, count, greatest_);
        runs.each([&](const Run &run) {
            const Cell &cell = grid.cells[run.cell()];
            windows.add(run.of_member(number * groups), cell.rounds);
            __builtin_prefetch(grid.codes + cell.first - (has_steps ? 8 : 0));
            if (has_steps) __builtin_prefetch(grid.codes + cell.first + 8);
            // The next run overwrites the excess.
            const Ints cells = splat(run.cell());
            const Ints codes = splat(static_cast<int32_t>(cell.code));
            memcpy(trials.cells + run.place(), &cells, sizeof cells);
            memcpy(trials.codes + run.place(), &codes, sizeof codes);
        });
        return true;
    }

    // Finds points for all trials of a team that is to be sought.
    template <int Room>
    static void find(LanesGridSearch *const *team, const Windows<Room> &windows) {
        static_assert(Trials::room <= level_stride, "rows have room for all");
        find_points<1>(team, windows);
        find_points<2>(team, windows);
        find_points<3>(team, windows);
        if constexpr (has_steps) find_points<all_steps>(team, windows);
    }

    // Gathers trials into columns.
    KERNEL_APART void make_columns() {
        trials.columns = 0;
        UNROLL
        for (int trial = 0; trial < count; trial += lanes) {
            Ints changes = splat(0);
            UNROLL
            for (int group = 0; group < groups; ++group) {
                const uint32_t *codes = trials.codes + group * count + trial;
                changes = changes | (load_ints(codes) ^ load_ints(codes + 1));
            }
            uint32_t ends = lanes_in(equal(changes, splat(0))) ^ all_lanes;
            if (trial + lanes >= count) {
                const uint32_t end = 1u << (count - trial - 1);
                ends = (ends & (end - 1)) | end;
            }
            const Ints chosen = numbers_of(ends), numbers = chosen + trial;
            memcpy(trials.last + trials.columns, &numbers, sizeof numbers);
            for (int group = 0; group < groups; ++group) {
                const Ints codes = pick(load_ints(trials.codes + group * count + trial), chosen);
                memcpy(trials.column_codes[group] + trials.columns, &codes, sizeof codes);
            }
            trials.columns += __builtin_popcount(ends);
        }
        // Padding of the last vector repeats a column.
        for (auto &codes : trials.column_codes) {
            const Ints copies = splat(static_cast<int32_t>(codes[0]));
            memcpy(codes + trials.columns, &copies, sizeof copies);
        }
    }

    // Sums the columns up, best not at once: what was written by parts is not read fast.
    void sum_up() {
        for (int first = 0; first < trials.columns; first += lanes) {
            Floats product = splat(0.0f), square = product;
            UNROLL
            for (int i = 0; i < Shape::size; ++i) {
                const Ints codes = load_ints(trials.column_codes[i / dimensions] + first);
                const Floats value = values_in(codes, i % dimensions);
                product = product + splat(weighted_[i]) * value;
                square = square + splat(part_->weights[i]) * value * value;
            }
            store(trials.products + first, product);
            store(trials.squares + first, square);
        }
    }

    // Which columns may score best; raises `best` to what none of the others reaches.
    uint32_t contenders(float &best) const {
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
        return found & static_cast<uint32_t>((uint64_t{1} << trials.columns) - 1);
    }

    // Finds the points of the wanted groups for one scale.
    bool find_again(float scale, uint32_t wanted, uint32_t (&codes)[groups]) const {
        const float inverse = 1.0f / scale;
        if (!suits(inverse, scale)) return false;
        wanted = find_between_trials(scale, inverse, wanted, codes);
        if (wanted == 0) return true;
        const GridLevels<Shape> levels(part_->x, inverse);
        for (; wanted != 0; wanted &= wanted - 1) {
            const int group = __builtin_ctz(wanted);
            const int number = levels.cell(group) + (levels.at_border(group) ? grid_->count : 0);
            const Cell &cell = grid_->cells[number];
            codes[group] = nearest(scale, group, grid_->codes + cell.first, cell.count);
        }
        return true;
    }

    // The weighted sums of all elements' points.
    GridSums<Shape> sums(const uint32_t (&codes)[groups]) const {
        float products[Shape::size], squares[Shape::size];
        UNROLL
        for (int i = 0; i < Shape::size; i += lanes) {
            // A vector holds a few groups, or a part of one.
            const Ints places = lane_numbers() + i;
            Ints levels = splat(0);
            UNROLL
            for (int lane = 0; lane < lanes; lane += dimensions) {
                const Ints code = splat(static_cast<int32_t>(codes[(i + lane) / dimensions]));
                levels = select(above(places, splat(i + lane - 1)), code, levels);
            }
            const Words shifts = (Words)(places & (dimensions - 1)) * Shape::level_bits;
            levels = (Ints)((Words)levels >> shifts) & (spread - 1);
            const Floats value = to_floats(levels * 2 + 1);
            store(products + i, load(weighted_ + i) * value);
            store(squares + i, load(part_->weights + i) * value * value);
        }
        GridSums<Shape> sums;
        for (int i = 0; i < Shape::size; ++i) {
            sums.product += products[i];
            sums.square += squares[i];
        }
        return sums;
    }

private:
    // Whether rounding is exact with the highest inverse, and distances finite with its scale.
    bool suits(float inverse, float scale) const {
        return inverse * greatest_ < 2 * nearest_bound && scale < 1e10f;
    }

    // A scale between those of two trials leaves a group in a cell that both have, and there, as
    // distances are lines, nearest to the point that both surely have. What both trials' lists or
    // that of the scale leave out is nearest nowhere. Returns the groups that need a search.
    KERNEL_INLINE uint32_t find_between_trials(float scale, float inverse, uint32_t wanted,
                                               uint32_t (&codes)[groups]) const {
        if constexpr (!WindowSearch::has_lines) return wanted;
        const float steps = (inverse * trials.range - (2 * Shape::levels - 1)) / Rule::step;
        const float at = steps + count / 2;
        if (!(at >= 0.0f && at < count - 1)) return wanted;
        const int trial = static_cast<int>(at);
        const float *inverses = trials.inverses + trial, *scales = trials.scales + trial;
        const bool between = inverses[0] <= inverse && inverse <= inverses[1] &&
                             scales[0] >= scale && scale >= scales[1];
        if (!between || (unsure_ >> trial & 3) != 0) return wanted;
        uint32_t left = 0;
        UNROLL
        for (int group = 0; group < groups; ++group) {
            const uint32_t *found = trials.codes + group * count + trial;
            const int32_t *cells = trials.cells + group * count + trial;
            const bool differs = (found[0] != found[1]) | (cells[0] != cells[1]);
            codes[group] = wanted >> group & 1 ? found[0] : codes[group];
            left |= static_cast<uint32_t>(differs) << group;
        }
        return wanted & left;
    }

    static KERNEL_INLINE Floats values_in(Ints codes, int place) {
        const Ints levels = shift_right(codes, Shape::level_bits * place);
        if constexpr (spread == 4) {
            return pick_of_four(to_floats((lane_numbers() & 3) * 2 + 1), levels);
        } else if constexpr (spread <= lanes) {
            return pick(to_floats((lane_numbers() & 7) * 2 + 1), levels);
        } else {
            return to_floats((levels & 7) * 2 + 1);
        }
    }

    template <int Rounds, int Room>
    static KERNEL_APART void find_points(LanesGridSearch *const *team,
                                         const Windows<Room> &windows) {
        const int last = windows.count(Rounds) - 1;
        if (last < 0) return;
        const Run *run = windows.of(Rounds);
        const auto member = [team](Run run) -> LanesGridSearch & {
            return Room == groups * count ? *team[0] : *team[run.group() / groups];
        };
        using Sketch = typename WindowSearch::template Sketch<Rounds == all_steps ? 3 : Rounds>;
        Sketch sketches[2];
        member(run[0]).template draw<Rounds>(run[0], sketches[0]);
        for (int i = 0; i < last; ++i) {
            // The next one is fetched early, to hide the latency.
            member(run[i + 1]).template draw<Rounds>(run[i + 1], sketches[(i + 1) & 1]);
            member(run[i]).find_points(run[i], sketches[i & 1]);
        }
        member(run[last]).find_points(run[last], sketches[last & 1]);
    }

    template <int Rounds, class Sketch>
    KERNEL_INLINE void draw(Run run, Sketch &sketch) const {
        const Cell &cell = grid_->cells[run.cell()];
        const uint32_t *codes = grid_->codes + cell.first;
        if constexpr (Rounds == all_steps) {
            search_.draw_steps(codes, run.group() % groups, sketch);
        } else {
            search_.draw(codes, cell.count, run.group() % groups, sketch);
        }
    }

    template <class Sketch>
    KERNEL_INLINE void find_points(Run run, Sketch &sketch) {
        const int group = run.group() % groups, trial = run.place() - group * count;
        uint32_t unsure;
        const Ints found = search_.nearest(sketch, group, trial, unsure);
        uint32_t *codes = trials.codes + run.place();
        const Mask own = above(splat(run.trials()), lane_numbers());
        const Ints mixed = select(own, found, load_ints(codes));
        memcpy(codes, &mixed, sizeof mixed);
        for (unsure &= lanes_in(own); unsure != 0; unsure &= unsure - 1) {
            const int i = __builtin_ctz(unsure);
            unsure_ |= 1u << (trial + i);
            const Cell &cell = grid_->cells[run.cell()];
            codes[i] = nearest(trials.scales[trial + i], group, grid_->codes + cell.first,
                               cell.count);
        }
    }

    // The code of the first of the nearest, by distances added up as ggml does.
    KERNEL_APART uint32_t nearest(float scale, int group, const uint32_t *neighbours,
                                  int count) const {
        const LevelTables<dimensions, spread> tables([&](int i, Floats levels) {
            const int at = group * dimensions + i;
            const Floats apart = splat(scale) * (levels * 2.0f + 1.0f) - part_->x[at];
            return splat(part_->roots[at]) * apart * apart;
        });
        return tables.nearest(neighbours, count).code;
    }

    const GridPart<Shape> *part_;
    const Neighbours *grid_;
    WindowSearch search_;
    float greatest_, weighted_[Shape::size];  // by the weights
    uint32_t unsure_;  // trials at which lines did not decide
};

}  // namespace
