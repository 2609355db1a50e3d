// Finds the points of a grid nearest to elements, with a trial per lane.
//
// From one scale to the next, a group of elements mostly rounds to the same cell. So trials come
// in intervals that have the same neighbours. Those with a choice are batches, and are gathered
// from a team of parts, so that batches of the same length are many in a row.
#pragma once
#include "contest.hpp"
#include "grid_batches.hpp"
#include "grid_intervals.hpp"

namespace {

template <class Rule>
class LanesGridSearch {
    using Shape = typename Rule::Shape;
    using Trials = GridTrials<Shape, Rule::candidates>;
    static constexpr int count = Rule::candidates;
    static constexpr int dimensions = Shape::dimensions, groups = Shape::groups;
    static constexpr int spread = Shape::levels == 3 ? 4 : 8;  // table entries of an element
    static constexpr bool has_steps = Shape::levels == 3;
    using BatchSearch = typename BatchSearchOf<Shape, Shape::levels <= lanes>::Type;

public:
    // Space for the searches of a team of parts.
    template <int Members>
    using TeamBatches = CellBatches<Members * groups * count>;

    Trials trials;

    // Finds cells for all trials, and batches for `number` of a team; false where rounding or
    // overflow leave what lanes can do.
    template <int Room>
    bool begin(const GridPart<Shape> &part, const Neighbours &grid, int number,
               CellBatches<Room> &batches) {
        part_ = &part;
        grid_ = &grid;
        unsure_ = 0;
        Floats greatest = broadcast(0.0f);
        UNROLL
        for (int i = 0; i < Shape::size; i += lanes) {
            const Floats x = load(part.x + i);
            greatest = maximum(greatest, absolute(x));
            store(weighted_ + i, load(part.weights + i) * x);
        }
        greatest_ = highest_lane(greatest);
        if (!suits(trials.inverses[count - 1], trials.scales[0])) return false;
        const CellIntervals<Rule> intervals(part, trials, grid);
        search_.prepare(part, grid, trials.scales, count, greatest_);
        intervals.each([&](const CellInterval &interval) {
            const Cell &cell = grid.cells[interval.cell()];
            batches.add(interval.of_member(number * groups), cell.rounds);
            __builtin_prefetch(grid.codes + cell.first - (has_steps ? 8 : 0));
            if (has_steps) __builtin_prefetch(grid.codes + cell.first + 8);
            // The next interval overwrites the excess.
            const Ints cells = broadcast(interval.cell());
            const Ints codes = broadcast(static_cast<int32_t>(cell.code));
            memcpy(trials.cells + interval.place(), &cells, sizeof cells);
            memcpy(trials.codes + interval.place(), &codes, sizeof codes);
        });
        return true;
    }

    // Finds points for all trials of a team that is to be sought.
    template <int Room>
    static void find(LanesGridSearch *const *team, const CellBatches<Room> &batches) {
        static_assert(Trials::room <= level_stride, "rows have room for all");
        find_points<1>(team, batches);
        find_points<2>(team, batches);
        find_points<3>(team, batches);
        if constexpr (has_steps) find_points<all_steps>(team, batches);
    }

    // Gathers trials into columns.
    KERNEL_NOINLINE void make_columns() {
        trials.columns = 0;
        UNROLL
        for (int trial = 0; trial < count; trial += lanes) {
            Ints changes = broadcast(0);
            UNROLL
            for (int group = 0; group < groups; ++group) {
                const uint32_t *codes = trials.codes + group * count + trial;
                changes = changes | (load_ints(codes) ^ load_ints(codes + 1));
            }
            uint32_t ends = movemask(equal(changes, broadcast(0))) ^ all_lanes;
            if (trial + lanes >= count) {
                const uint32_t end = 1u << (count - trial - 1);
                ends = (ends & (end - 1)) | end;
            }
            const Ints chosen = compress_lanes(ends), numbers = chosen + trial;
            memcpy(trials.last + trials.columns, &numbers, sizeof numbers);
            for (int group = 0; group < groups; ++group) {
                const Ints codes = permute(load_ints(trials.codes + group * count + trial), chosen);
                memcpy(trials.column_codes[group] + trials.columns, &codes, sizeof codes);
            }
            trials.columns += __builtin_popcount(ends);
        }
        // Padding of the last vector repeats a column.
        for (auto &codes : trials.column_codes) {
            const Ints copies = broadcast(static_cast<int32_t>(codes[0]));
            memcpy(codes + trials.columns, &copies, sizeof copies);
        }
    }

    // Sums the columns up, best not at once: what was written by parts is not read fast.
    void sum_up() {
        for (int first = 0; first < trials.columns; first += lanes) {
            Floats product = broadcast(0.0f), square = product;
            UNROLL
            for (int i = 0; i < Shape::size; ++i) {
                const Ints codes = load_ints(trials.column_codes[i / dimensions] + first);
                const Floats value = values_in(codes, i % dimensions);
                product = product + broadcast(weighted_[i]) * value;
                square = square + broadcast(part_->weights[i]) * value * value;
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
        uint32_t result = 0;
        for (int i = 0; i < trials.columns; i += lanes) {
            const Floats product = load(trials.products + i);
            const Floats bound = broadcast(best) * load(trials.squares + i);
            result |= movemask(less(bound, product * product)) << i;
        }
        return result & static_cast<uint32_t>((uint64_t{1} << trials.columns) - 1);
    }

    // Finds the points of the requested groups for one scale.
    bool find_again(float scale, uint32_t requested, uint32_t (&codes)[groups]) const {
        const float inverse = 1.0f / scale;
        if (!suits(inverse, scale)) return false;
        requested = find_between_trials(scale, inverse, requested, codes);
        if (requested == 0) return true;
        const GridLevels<Shape> levels(part_->x, inverse);
        for (; requested != 0; requested &= requested - 1) {
            const int group = __builtin_ctz(requested);
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
            Ints levels = broadcast(0);
            UNROLL
            for (int lane = 0; lane < lanes; lane += dimensions) {
                const Ints code = broadcast(static_cast<int32_t>(codes[(i + lane) / dimensions]));
                levels = select(greater(places, broadcast(i + lane - 1)), code, levels);
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
    KERNEL_INLINE uint32_t find_between_trials(float scale, float inverse, uint32_t requested,
                                               uint32_t (&codes)[groups]) const {
        if constexpr (!BatchSearch::has_lines) return requested;
        const float steps = (inverse * trials.range - (2 * Shape::levels - 1)) / Rule::step;
        const float index = steps + count / 2;
        if (!(index >= 0.0f && index < count - 1)) return requested;
        const int trial = static_cast<int>(index);
        const float *inverses = trials.inverses + trial, *scales = trials.scales + trial;
        const bool between = inverses[0] <= inverse && inverse <= inverses[1] &&
                             scales[0] >= scale && scale >= scales[1];
        if (!between || (unsure_ >> trial & 3) != 0) return requested;
        uint32_t remaining = 0;
        UNROLL
        for (int group = 0; group < groups; ++group) {
            const uint32_t *result = trials.codes + group * count + trial;
            const int32_t *cells = trials.cells + group * count + trial;
            const bool differs = (result[0] != result[1]) | (cells[0] != cells[1]);
            codes[group] = requested >> group & 1 ? result[0] : codes[group];
            remaining |= static_cast<uint32_t>(differs) << group;
        }
        return requested & remaining;
    }

    static KERNEL_INLINE Floats values_in(Ints codes, int place) {
        const Ints levels = shift_right(codes, Shape::level_bits * place);
        if constexpr (spread == 4) {
            return permute_in_fours(to_floats((lane_numbers() & 3) * 2 + 1), levels);
        } else if constexpr (spread <= lanes) {
            return permute(to_floats((lane_numbers() & 7) * 2 + 1), levels);
        } else {
            return to_floats((levels & 7) * 2 + 1);
        }
    }

    template <int Rounds, int Room>
    static KERNEL_NOINLINE void find_points(LanesGridSearch *const *team,
                                            const CellBatches<Room> &batches) {
        const int last = batches.count(Rounds) - 1;
        if (last < 0) return;
        const CellInterval *interval = batches.of(Rounds);
        const auto member = [team](CellInterval interval) -> LanesGridSearch & {
            return Room == groups * count ? *team[0] : *team[interval.group() / groups];
        };
        using Sketch = typename BatchSearch::template Sketch<Rounds == all_steps ? 3 : Rounds>;
        Sketch sketches[2];
        member(interval[0]).template draw<Rounds>(interval[0], sketches[0]);
        for (int i = 0; i < last; ++i) {
            // The next one is fetched early, to hide the latency.
            member(interval[i + 1]).template draw<Rounds>(interval[i + 1], sketches[(i + 1) & 1]);
            member(interval[i]).find_points(interval[i], sketches[i & 1]);
        }
        member(interval[last]).find_points(interval[last], sketches[last & 1]);
    }

    template <int Rounds, class Sketch>
    KERNEL_INLINE void draw(CellInterval interval, Sketch &sketch) const {
        const Cell &cell = grid_->cells[interval.cell()];
        const uint32_t *codes = grid_->codes + cell.first;
        if constexpr (Rounds == all_steps) {
            search_.draw_steps(codes, interval.group() % groups, sketch);
        } else {
            search_.draw(codes, cell.count, interval.group() % groups, sketch);
        }
    }

    template <class Sketch>
    KERNEL_INLINE void find_points(CellInterval interval, Sketch &sketch) {
        const int group = interval.group() % groups, trial = interval.place() - group * count;
        uint32_t unsure;
        const Ints result = search_.nearest(sketch, group, trial, unsure);
        uint32_t *codes = trials.codes + interval.place();
        const Mask own = greater(broadcast(interval.trials()), lane_numbers());
        const Ints mixed = select(own, result, load_ints(codes));
        memcpy(codes, &mixed, sizeof mixed);
        for (unsure &= movemask(own); unsure != 0; unsure &= unsure - 1) {
            const int i = __builtin_ctz(unsure);
            unsure_ |= 1u << (trial + i);
            const Cell &cell = grid_->cells[interval.cell()];
            codes[i] =
                nearest(trials.scales[trial + i], group, grid_->codes + cell.first, cell.count);
        }
    }

    // The code of the first of the nearest, by distances added up as ggml does.
    KERNEL_NOINLINE uint32_t nearest(float scale, int group, const uint32_t *neighbours,
                                     int count) const {
        const LevelTables<dimensions, spread> tables([&](int i, Floats levels) {
            const int index = group * dimensions + i;
            const Floats apart = broadcast(scale) * (levels * 2.0f + 1.0f) - part_->x[index];
            return broadcast(part_->roots[index]) * apart * apart;
        });
        return tables.nearest(neighbours, count).code;
    }

    const GridPart<Shape> *part_;
    const Neighbours *grid_;
    BatchSearch search_;
    float greatest_, weighted_[Shape::size];  // by the weights
    uint32_t unsure_;                         // trials at which lines did not decide
};

}  // namespace
