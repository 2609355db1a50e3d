// The nearest of a group's neighbours under as many scales as there are lanes. A window may reach
// beyond the last scale: what lanes find there counts nowhere.
#pragma once
#include "nearest.hpp"
#include "grid_scalar.hpp"

namespace {

// A cell's neighbours, sought for a group under some trials from one on.
struct Window {
    uint32_t first;
    uint16_t count;
    uint8_t group, trial, trials;
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
// two neighbours may be too near each other to say. This pays where points have many elements.
template <class Shape>
class NeighbourLines {
    static constexpr int dimensions = Shape::dimensions, groups = Shape::groups;
    static constexpr int spread = Shape::levels == 3 ? 4 : 8;  // table entries of an element
    static constexpr float highest_value = 2 * Shape::levels - 1;

    // Let D be highest_value * s + |x|, the largest difference that s * v - x may make. A distance
    // of ggml's is wrong by at most 13 parts in 2^24 of D * D times all roots, a line by 11; and
    // two neighbours are compared.
    static constexpr float rounding = 0x1p-18f;
    static constexpr float least_slack = 1e-30f;  // below it, numbers may be too small for floats

public:
    // For scales that fall from the first to the last.
    NeighbourLines(const GridPart<Shape> &part, const float *scales, int count) : scales_(scales) {
        for (int group = 0; group < groups; ++group) {
            const float *x = part.x + group * dimensions, *roots = part.roots + group * dimensions;
            squares_[group] = LevelTables<dimensions, spread>([&](int i, Floats levels) {
                const Floats value = levels * 2.0f + 1.0f;
                return splat(roots[i]) * value * value;
            });
            products_[group] = LevelTables<dimensions, spread>([&](int i, Floats levels) {
                return splat(2.0f * roots[i] * x[i]) * (levels * 2.0f + 1.0f);
            });
            slack_[group] = slack_of(x, roots, scales[count - 1], scales[0]);
        }
    }

    // The codes of the nearest by trial; `unsure` are trials where others may be as near.
    KERNEL_INLINE Ints nearest(const Neighbours &grid, Window window, uint32_t &unsure) const {
        const Floats scales = load(scales_ + window.trial);
        Floats least = splat(largest_float), second = least;
        Ints found = splat(0);
        for (int first = 0; first < window.count; first += lanes) {
            const uint32_t *codes = grid.codes + window.first + first;
            float squares[lanes], products[lanes];
            store(squares, squares_[window.group].sums(codes));
            store(products, products_[window.group].sums(codes));
            const int some = minimum(window.count - first, lanes);
            for (int i = 0; i < some; ++i) {
                const Floats now = scales * squares[i] - products[i];
                found = select(less(now, least), splat(static_cast<int32_t>(codes[i])), found);
                second = minimum(second, maximum(now, least));
                least = minimum(now, least);
            }
        }
        unsure = lanes_in(less(second, least + splat(slack_[window.group])));
        return found;
    }

private:
    static KERNEL_INLINE float slack_of(const float *x, const float *roots, float least,
                                        float most) {
        float greatest = 0.0f, sum = 0.0f;
        UNROLL
        for (int i = 0; i < dimensions; ++i) {
            sum += roots[i];
            greatest = maximum(greatest, x[i] < 0.0f ? -x[i] : x[i]);
        }
        const float low = highest_value * least + greatest, high = highest_value * most + greatest;
        const float share = rounding * sum;
        const bool usual = low * low * share > least_slack;
        return usual ? maximum(low * low / least, high * high / most) * share : largest_float;
    }

    const float *scales_;
    LevelTables<dimensions, spread> squares_[groups], products_[groups];
    float slack_[groups];
};

// Where points have few elements, distances are added up in ggml's order, from terms that are ggml's.
template <class Shape>
class ScaledLevels {
    static constexpr int dimensions = Shape::dimensions;

public:
    ScaledLevels(const GridPart<Shape> &part, const float *scales, int count) : part_(part) {
        for (int level = 0; level < Shape::levels; ++level) {
            for (int i = 0; i < count; i += lanes) {
                store(of_[level] + i, load(scales + i) * (2.0f * level + 1.0f));
            }
        }
    }

    // The codes of the nearest by trial, and none is unsure.
    KERNEL_INLINE Ints nearest(const Neighbours &grid, Window window, uint32_t &unsure) const {
        const Group own(*this, window);
        const uint32_t *code = grid.codes + window.first, *end = code + window.count;
        Floats least = own.distances(grid.steps[*code >> 16]);
        Ints found = splat(static_cast<int32_t>(*code));
        while (++code < end) {
            const Floats now = own.distances(grid.steps[*code >> 16]);
            found = select(less(now, least), splat(static_cast<int32_t>(*code)), found);
            least = minimum(now, least);
        }
        unsure = 0;
        return found;
    }

private:
    struct Group {
        const float *values;
        Floats x[dimensions], roots[dimensions];

        KERNEL_INLINE Group(const ScaledLevels &levels, Window window)
            : values(levels.of_[0] + window.trial) {
            UNROLL
            for (int i = 0; i < dimensions; ++i) {
                x[i] = splat(levels.part_.x[window.group * dimensions + i]);
                roots[i] = splat(levels.part_.roots[window.group * dimensions + i]);
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

    const GridPart<Shape> &part_;
    float of_[Shape::levels][level_stride];
};

template <class Shape, int Levels>
struct WindowSearchOf {
    using Type = ScaledLevels<Shape>;
};
template <class Shape>
struct WindowSearchOf<Shape, 3> {
    using Type = NeighbourLines<Shape>;
};

}  // namespace
