// The points of a grid nearest to elements, sought with a neighbour per lane.
//
// Rounding and the sums have a trial per lane. The distances of neighbours come from tables of
// weighted squares that hold every level of every element of the group; they are added up in
// ggml's order, and the first of the smallest is ggml's choice as the lists are laid out for it.
#pragma once
#include "grid_scalar.hpp"

namespace {

constexpr uint32_t all_lanes = static_cast<uint32_t>((uint64_t{1} << lanes) - 1);

// What each level of each element adds to a neighbour's distance, `Spread` entries an element.
template <int Dimensions, int Spread>
struct LevelTables {
    static constexpr int count = Dimensions * Spread / lanes;
    static constexpr int elements = lanes / Spread;  // in a table, or 0: half an element
    Floats of[count];

    // The distances of as many neighbours as there are lanes.
    KERNEL_INLINE Floats sums(const uint32_t *entries) const {
        Ints codes;
        memcpy(&codes, entries, sizeof codes);
        Floats sum = look_up(codes, 0);
        UNROLL
        for (int i = 1; i < Dimensions; ++i) sum = sum + look_up(codes, i);
        return sum;
    }

private:
    KERNEL_INLINE Floats look_up(Ints codes, int place) const {
        const Ints index = shift_right(codes, 4 * place);
        if constexpr (elements > 0) {
            return pick(of[place / elements], index);
        } else {
            const Floats lower = pick(of[2 * place], index), upper = pick(of[2 * place + 1], index);
            return select(above(index & 4, splat(0)), upper, lower);
        }
    }
};

template <class Shape>
class LanesGridSearch {
    static constexpr int spread = Shape::levels == 3 ? 4 : 8;  // table entries of an element
    using Tables = LevelTables<Shape::dimensions, spread>;  // of a group

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
        Floats greatest = splat(0.0f);
        for (int i = 0; i < Shape::size; i += lanes) {
            const Floats x = load(part.x + i), roots = load(part.roots + i);
            greatest = maximum(greatest, absolute(x));
            UNROLL
            for (int j = 0; j < spread; ++j) {
                const Ints which = element_of_table(j);
                store(spread_x_ + i * spread + j * lanes, pick(x, which));
                store(spread_roots_ + i * spread + j * lanes, pick(roots, which));
            }
        }
        greatest_ = highest_lane(greatest);
    }

    // Finds the points of all wanted groups; false where rounding leaves what lanes can do.
    template <int Count>
    bool find(GridTrials<Shape, Count> &trials, uint32_t wanted) const {
        for (int i = 0; i < trials.used; i += lanes) {
            const Floats reach = load(trials.inverses + i) * greatest_;
            if (lanes_in(less(reach, splat(2 * nearest_bound))) != all_lanes) return false;
        }
        Worklist<Count> work;
        for (int group = 0; group < Shape::groups; ++group) {
            if (wanted >> group & 1) round_group(trials, group, work);
        }
        for (const Item *item = work.begin(0); item < work.end(0); ++item) {
            const int place = item->place(), group = place / trials.places;
            trials.entries[place] = item->first();
            trials.on_grid[place % trials.places] |= static_cast<uint8_t>(1 << group);
        }
        Distances<Count> distances;
        measure<1>(trials, work, distances);
        measure<2>(trials, work, distances);
        measure<3>(trials, work, distances);
        settle(trials, distances);
        return true;
    }

    template <int Count>
    void sum_up(GridTrials<Shape, Count> &trials) const {
        constexpr int used = GridTrials<Shape, Count>::used, vectors = used / lanes;
        uint32_t codes[Shape::groups][used];
        for (int group = 0; group < Shape::groups; ++group) {
            for (int i = 0; i < used; ++i) {
                codes[group][i] = grid_.codes[trials.entry(group, i < Count ? i : 0)];
            }
        }
        Floats products[vectors] = {}, squares[vectors] = {};
        for (int group = 0; group < Shape::groups; ++group) {
            UNROLL
            for (int i = 0; i < Shape::dimensions; ++i) {
                const int at = group * Shape::dimensions + i;
                const Floats weight = splat(part_.weights[at]);
                const Floats weighted = splat(part_.weights[at] * part_.x[at]);
                UNROLL
                for (int v = 0; v < vectors; ++v) {
                    const Floats value = values_in(load_ints(codes[group] + v * lanes), i);
                    products[v] = products[v] + weighted * value;
                    squares[v] = squares[v] + weight * value * value;
                }
            }
        }
        memcpy(trials.products, products, sizeof products);
        memcpy(trials.squares, squares, sizeof squares);
    }

private:
    // A cell, and in the bits it leaves free the place where its group and trial have their entry.
    struct Item : Cell {
        int place() const { return static_cast<int>(word & 0x3FF); }
    };

    // Items by kind of cell, so that no loop's end is hard to foresee. With the first kind, the
    // points on the grid, nothing is to be done.
    template <int Count>
    struct Worklist {
        static constexpr uint64_t most = Count * Shape::groups;
        static_assert(GridTrials<Shape, Count>::places * Shape::groups <= 1 << 10, "places fit");
        Item items[4 * most];
        // Where each kind ends, in sixteen bits each: in memory they would wait for each other.
        uint64_t ends = most << 16 | 2 * most << 32 | 3 * most << 48;

        const Item *begin(int kind) const { return items + kind * most; }
        const Item *end(int kind) const { return items + (ends >> 16 * kind & 0xFFFF); }

        KERNEL_INLINE void add(Cell cell, int place) {
            const int shift = cell.shift();
            items[ends >> shift & 0xFFFF] = {{cell.word + static_cast<uint64_t>(place)}};
            ends += uint64_t{1} << shift;
        }
    };

    template <int Count>
    struct Distances {
        static constexpr int most = (Count * Shape::groups + lanes - 1) / lanes * lanes;
        Floats least[most];
        Ints chunk[most];  // in which the lane's least stood
        Item items[most];
        int count = 0;
    };

    static KERNEL_INLINE Ints load_ints(const uint32_t *from) {
        Ints ints;
        memcpy(&ints, from, sizeof ints);
        return ints;
    }

    // Whose levels stand in which lanes, of table j of as many elements as there are lanes.
    static KERNEL_INLINE Ints element_of_table(int j) {
        Ints which;
        UNROLL
        for (int i = 0; i < lanes; ++i) which[i] = (j * lanes + i) / spread;
        return which;
    }

    static KERNEL_INLINE float highest_lane(Floats value) {
        float highest = value[0];
        UNROLL
        for (int i = 1; i < lanes; ++i) highest = maximum(highest, value[i]);
        return highest;
    }

    static KERNEL_INLINE Floats values(int part) {
        Floats made;
        UNROLL
        for (int i = 0; i < lanes; ++i) made[i] = 2.0f * ((part * lanes + i) % spread) + 1.0f;
        return made;
    }

    static KERNEL_INLINE Floats values_in(Ints codes, int place) {
        if constexpr (Tables::elements > 0) {
            return pick(values(0), shift_right(codes, 4 * place));
        }
        return to_floats((shift_right(codes, 4 * place) & (spread - 1)) * 2 + 1);
    }

    template <int Count>
    KERNEL_INLINE void round_group(GridTrials<Shape, Count> &trials, int group,
                                   Worklist<Count> &work) const {
        UNROLL
        for (int first = 0; first < Count; first += lanes) {
            int32_t numbers[lanes];
            const Ints cells = cells_of(load(trials.inverses + first), group);
            memcpy(numbers, &cells, sizeof numbers);
            UNROLL
            for (int i = 0; i < lanes; ++i) {
                if (first + i >= Count) break;
                work.add(grid_.cells[numbers[i]], group * trials.places + first + i);
            }
        }
    }

    // The numbers of the cells that a group's elements round to.
    KERNEL_INLINE Ints cells_of(Floats inverse, int group) const {
        const Floats half = inverse * 0.5f;
        Floats number = splat(0.0f), apart = splat(0.0f);
        UNROLL
        for (int i = 0; i < Shape::dimensions; ++i) {
            const Floats x = splat(part_.x[group * Shape::dimensions + i]);
            const Floats level = half * x - 0.5f;  // half of ggml's, and so is what it rounds
            const Floats inside = minimum(maximum(level, splat(0.0f)), splat(Shape::levels - 1.0f));
            const Floats rounded = nearest(inside);
            number = number * static_cast<float>(Shape::levels) + rounded;
            apart = maximum(apart, absolute(inside - rounded));
        }
        // Two points on either side of a border may be as near as each other, but for rounding:
        // no neighbour is idle there.
        const Mask border = less(splat(0.4999f), apart);
        return truncate(number) + select(border, splat(grid_.count), splat(0));
    }

    template <int Kind, int Count>
    KERNEL_INLINE void measure(const GridTrials<Shape, Count> &trials, const Worklist<Count> &work,
                               Distances<Count> &distances) const {
        const Item *end = work.end(Kind);
        for (const Item *item = work.begin(Kind); item < end; ++item) {
            const float scale = trials.scales[item->place() % trials.places];
            const Tables tables = tables_of(item->place() / trials.places, scale);
            const uint32_t *codes = grid_.codes + item->first();
            Floats least = tables.sums(codes);
            Ints chunk = splat(0);
            for (int k = 1; k < (Kind < 3 ? Kind : item->chunks()); ++k) {
                const Floats now = tables.sums(codes + k * lanes);
                chunk = select(less(now, least), splat(k), chunk);
                least = minimum(now, least);
            }
            distances.least[distances.count] = least;
            distances.chunk[distances.count] = chunk;
            distances.items[distances.count++] = *item;
        }
    }

    KERNEL_INLINE Tables tables_of(int group, float scale) const {
        const float *x = spread_x_ + group * Tables::count * lanes;
        const float *roots = spread_roots_ + group * Tables::count * lanes;
        Tables tables;
        UNROLL
        for (int i = 0; i < Tables::count; ++i) {
            const Floats apart = splat(scale) * values(i) - load(x + i * lanes);
            tables.of[i] = load(roots + i * lanes) * apart * apart;
        }
        return tables;
    }

    // Takes the first lane of the smallest distance, of `lanes` items at a time.
    template <int Count>
    KERNEL_INLINE void settle(GridTrials<Shape, Count> &trials,
                              const Distances<Count> &distances) const {
        for (int first = 0; first < distances.count; first += lanes) {
            Floats rows[lanes];
            memcpy(rows, distances.least + first, sizeof rows);  // what is too many counts nowhere
            transpose(rows);
            Ints winner = splat(0);
            UNROLL
            for (int lane = 1; lane < lanes; ++lane) {
                winner = select(less(rows[lane], rows[0]), splat(lane), winner);
                rows[0] = minimum(rows[lane], rows[0]);
            }
            for (int i = 0; i < lanes && first + i < distances.count; ++i) {
                const Item &item = distances.items[first + i];
                const int lane = winner[i], chunk = distances.chunk[first + i][lane];
                trials.entries[item.place()] = item.first() + chunk * lanes + lane;
            }
        }
    }

    const GridPart<Shape> &part_;
    const Neighbours &grid_;
    float spread_x_[Shape::size * spread], spread_roots_[Shape::size * spread];
    float greatest_ = 0.0f;
};

}  // namespace
