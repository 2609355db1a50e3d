// The nearest of a group's neighbours in a interval of trials, with a trial per lane. Lanes may
// reach beyond the last trial: what they find there counts nowhere.
#pragma once
#include "grid_intervals.hpp"

namespace {

// Runs by the rounds of their cells, so that those in a row take the same steps.
template <int Room>
class CellBatches {
public:
    void clear() { counts_ = 0; }

    KERNEL_INLINE void add(const CellInterval &interval, int rounds) {
        of_[rounds][count(rounds)] = interval;
        counts_ += uint64_t{1} << bits * rounds;
    }

    int count(int rounds) const { return counts_ >> bits * rounds & ((1 << bits) - 1); }
    const CellInterval *of(int rounds) const { return of_[rounds]; }

private:
    static constexpr int bits = 12;
    static_assert(Room < 1 << bits, "a count has bits for all");
    CellInterval of_[all_steps + 1][Room];
    uint64_t counts_;  // a few bits each
};

constexpr int level_stride = 2 * level_step;  // floats from a level's row to the next one's

KERNEL_INLINE Floats load_level(const float *row, uint8_t step) {
    Floats value;
    memcpy(&value, reinterpret_cast<const char *>(row) + uint64_t{8} * step, sizeof value);
    return value;
}

// A distance, over its scale and less what all neighbours have in common, is a line:
//
//     sum of r * (s * v - x)^2 = s * (s * sum of r * v^2 - sum of 2 * r * v * x) + sum of r * x^2
//
// So two sums of a neighbour tell where it is nearest. They are not added up as ggml does, so that
// two neighbours may be too near each other to say.
template <class Shape>
class NeighbourLines {
    static constexpr int dimensions = Shape::dimensions, groups = Shape::groups;
    static constexpr int spread = Shape::levels == 3 ? 4 : 8;  // table entries of an element
    static constexpr float highest_value = 2 * Shape::levels - 1;

    // Let D be highest_value * s plus the greatest |x|: no s * v - x is larger. A distance
    // of ggml's is wrong by at most 13 parts in 2^24 of D * D times all roots, a line by 11; and
    // two neighbours are compared. So one that is nearer by this much at two scales, by lines, is
    // so between them too, as ggml adds distances up.
    static constexpr float rounding = 0x1p-18f;
    static constexpr float least_slack = 1e-30f;  // below it, numbers may be too small for floats

public:
    static constexpr bool has_lines = true;  // certain at two scales means certain between them

    // For scales that fall from the first to the last.
    KERNEL_INLINE void prepare(const GridPart<Shape> &part, const Neighbours &, const float *scales,
                               int count, float greatest) {
        scales_ = scales;
        const float low = highest_value * scales[count - 1] + greatest;
        const float high = highest_value * scales[0] + greatest;
        const float worst =
            rounding * maximum(low * low / scales[count - 1], high * high / scales[0]);
        float doubled[Shape::size];
        UNROLL
        for (int i = 0; i < Shape::size; i += lanes) {
            const Floats roots = load(part.roots + i), product = roots * load(part.x + i);
            store(doubled + i, product * 2.0f);
            if (Shape::levels > 3) continue;
            store(fours_ + i, roots * 4.0f);
            store(four_products_ + i, product * 4.0f);
        }
        for (int group = 0; group < groups; ++group) {
            const float *roots = part.roots + group * dimensions;
            squares_[group] = LevelTables<dimensions, spread>([&](int i, Floats levels) {
                const Floats value = levels * 2.0f + 1.0f;
                return broadcast(roots[i]) * (value * value);
            });
            products_[group] = LevelTables<dimensions, spread>([&](int i, Floats levels) {
                return broadcast(doubled[group * dimensions + i]) * (levels * 2.0f + 1.0f);
            });
            float sum = 0.0f;
            UNROLL
            for (int i = 0; i < dimensions; ++i) sum += roots[i];
            const bool usual = low * low * rounding * sum > least_slack;
            slack_[group] = usual ? worst * sum : largest_float;
        }
    }

    // A cell's neighbours, and the lines of the first of them; what is beyond the last neighbour is
    // out of reach.
    template <int Rounds>
    struct Sketch {
        static constexpr int sought = Rounds == 3 ? 16 : 4 * Rounds;
        static constexpr int drawn = sought < lanes ? lanes : sought;
        alignas(Floats) float squares[drawn + lanes], products[drawn + lanes];
        uint32_t steps[drawn + lanes];
        const uint32_t *codes;
        int count;
    };

    template <int Rounds>
    KERNEL_INLINE void draw(const uint32_t *codes, int count, int group,
                            Sketch<Rounds> &sketch) const {
        UNROLL
        for (int i = 0; i < sketch.drawn; i += lanes) {
            const Mask some = greater(broadcast(count), lane_numbers() + i);
            const Floats products = products_[group].sums(codes + i);
            store(sketch.squares + i, squares_[group].sums(codes + i));
            store(sketch.products + i, select(some, products, broadcast(-largest_float)));
        }
        sketch.codes = codes;
        sketch.count = count;
        // Reading them one by one from memory is faster than GCC's code in registers.
        __asm__("" : "+m"(sketch));
    }

    // The same for all_steps: first a neighbour for each dimension, then the other one where there
    // are two. Their lines are what the step t, 2 or -2, adds to that of the point itself:
    //
    //     s * (s * 4 * r * (1 + v * t / 2) - 2 * t * r * x)
    KERNEL_INLINE void draw_steps(const uint32_t *codes, int group, Sketch<3> &sketch) const {
        const uint32_t *indices = codes - dimensions;
        const Words center = (Words)broadcast(static_cast<int32_t>(indices[-1])),
                    one = (Words)broadcast(1);
        int count = dimensions;
        UNROLL
        for (int i = 0; i < dimensions; i += lanes) {
            const Words places = (Words)((lane_numbers() + i) * 2);
            const Ints levels = (Ints)(center >> places) & 3;
            const Words step = one << places, both_indices = (Words)load_ints(indices + i);
            const Ints up = (Ints)(center + step + (both_indices & 0xFFFF0000));
            const Ints down = (Ints)(center - step + (both_indices << 16));
            const Floats fours = load(fours_ + group * dimensions + i);
            const Floats product = load(four_products_ + group * dimensions + i);
            const Floats slope = fours * to_floats(levels * 2 + 1);
            const Mask top = greater(levels, broadcast(1)), middle = equal(levels, broadcast(1));
            const Floats lower = fours - slope;
            const Ints first = select(top, down, up);
            store(sketch.squares + i, select(top, lower, fours + slope));
            store(sketch.products + i, select(top, -product, product));
            memcpy(sketch.steps + i, &first, sizeof first);
            const uint32_t others = movemask(middle) & ((1u << dimensions) - 1);
            const Ints order = compress_lanes(others), second = permute(down, order);
            store(sketch.squares + count, permute(lower, order));
            store(sketch.products + count, permute(-product, order));
            memcpy(sketch.steps + count, &second, sizeof second);
            count += __builtin_popcount(others);
        }
        store(sketch.squares + count, broadcast(0.0f));
        store(sketch.products + count, broadcast(-largest_float));
        sketch.codes = sketch.steps;
        sketch.count = count;
        __asm__("" : "+m"(sketch));
    }

    // The codes of the nearest by trial; `unsure` are trials where others may be as near.
    template <int Rounds>
    KERNEL_INLINE Ints nearest(Sketch<Rounds> &sketch, int group, int trial,
                               uint32_t &unsure) const {
        const Floats scales = load(scales_ + trial);
        Floats least = broadcast(largest_float), second = least;
        Ints result = broadcast(0);
        for (;;) {
            const int some = Rounds < 3 ? 4 * Rounds : minimum(sketch.count, sketch.drawn);
            for (int i = 0; i < some; i += 4) {
                UNROLL
                for (int j = i; j < i + 4; ++j) {
                    const Floats now =
                        fmsub(scales, broadcast(sketch.squares[j]), broadcast(sketch.products[j]));
                    const Ints code = broadcast(static_cast<int32_t>(sketch.codes[j]));
                    result = select(less(now, least), code, result);
                    second = minimum(second, maximum(now, least));
                    least = minimum(now, least);
                }
            }
            if (Rounds < 3 || sketch.count <= sketch.drawn) break;
            draw(sketch.codes + sketch.drawn, sketch.count - sketch.drawn, group, sketch);
        }
        unsure = movemask(less(second, least + broadcast(slack_[group])));
        return result;
    }

private:
    const float *scales_;
    float fours_[Shape::size + lanes], four_products_[Shape::size + lanes];  // of roots, with x
    LevelTables<dimensions, spread> squares_[groups], products_[groups];
    float slack_[groups];
};

// Where there are more levels than lanes, so that looking them up is slow: distances are added up
// in ggml's order, from terms that are ggml's.
template <class Shape>
class ScaledLevels {
    static constexpr int dimensions = Shape::dimensions;

public:
    static constexpr bool has_lines = false;

    KERNEL_INLINE void prepare(const GridPart<Shape> &part, const Neighbours &grid,
                               const float *scales, int count, float) {
        part_ = &part;
        grid_ = &grid;
        for (int level = 0; level < Shape::levels; ++level) {
            for (int i = 0; i < count; i += lanes) {
                store(of_[level] + i, load(scales + i) * (2.0f * level + 1.0f));
            }
        }
    }

    template <int>
    struct Sketch {
        const uint32_t *codes;
        int count;
    };

    template <int Rounds>
    KERNEL_INLINE void draw(const uint32_t *codes, int count, int, Sketch<Rounds> &sketch) const {
        sketch = {codes, count};
    }

    // The codes of the nearest by trial, and none is unsure.
    template <int Rounds>
    KERNEL_INLINE Ints nearest(const Sketch<Rounds> &sketch, int group, int trial,
                               uint32_t &unsure) const {
        const Group own(*this, group, trial);
        const uint32_t *code = sketch.codes, *end = code + sketch.count;
        Floats least = own.distances(grid_->steps[*code >> 16]);
        Ints result = broadcast(static_cast<int32_t>(*code));
        while (++code < end) {
            const Floats now = own.distances(grid_->steps[*code >> 16]);
            result = select(less(now, least), broadcast(static_cast<int32_t>(*code)), result);
            least = minimum(now, least);
        }
        unsure = 0;
        return result;
    }

private:
    struct Group {
        const float *values;
        Floats x[dimensions], roots[dimensions];

        KERNEL_INLINE Group(const ScaledLevels &levels, int group, int trial)
            : values(levels.of_[0] + trial) {
            UNROLL
            for (int i = 0; i < dimensions; ++i) {
                x[i] = broadcast(levels.part_->x[group * dimensions + i]);
                roots[i] = broadcast(levels.part_->roots[group * dimensions + i]);
            }
        }

        KERNEL_INLINE Floats distances(const uint8_t (&steps)[8]) const {
            Floats sum = term(0, steps[0]);
            UNROLL
            for (int i = 1; i < dimensions; ++i) sum = sum + term(i, steps[i]);
            return sum;
        }

        KERNEL_INLINE Floats term(int i, uint8_t step) const {
            const Floats apart = load_level(values, step) - x[i];
            return roots[i] * apart * apart;
        }
    };

    const GridPart<Shape> *part_;
    const Neighbours *grid_;
    float of_[Shape::levels][level_stride];
};

template <class Shape, bool Lines>
struct BatchSearchOf {
    using Type = NeighbourLines<Shape>;
};
template <class Shape>
struct BatchSearchOf<Shape, false> {
    using Type = ScaledLevels<Shape>;
};

}  // namespace
