// The distances of one neighbour under as many scales as there are lanes. They are added up in
// ggml's order, from terms that are ggml's. A window may reach beyond the last scale: what lanes
// find there counts nowhere.
#pragma once
#include "grid_scalar.hpp"

namespace {

constexpr int level_stride = 2 * level_step;  // floats from a level's row to the next one's

KERNEL_INLINE Floats load_level(const float *row, uint8_t step) {
    Floats value;
    memcpy(&value, reinterpret_cast<const char *>(row) + uint64_t{8} * step, sizeof value);
    return value;
}

// With few levels, what each level of each element adds is worth a table.
template <class Shape>
class TermTables {
    static constexpr int dimensions = Shape::dimensions, levels = Shape::levels;
    using Tables = float[dimensions][levels][level_stride];

public:
    TermTables(const GridPart<Shape> &part, const float *scales, int count) {
        for (int group = 0; group < Shape::groups; ++group) {
            for (int i = 0; i < count; i += lanes) fill(part, group, load(scales + i), i);
        }
    }

    struct Window {
        const float *terms;

        KERNEL_INLINE Floats distances(const uint8_t (&steps)[8]) const {
            Floats sum = load_level(terms, steps[0]);
            UNROLL
            for (int i = 1; i < dimensions; ++i) {
                sum = sum + load_level(terms + i * levels * level_stride, steps[i]);
            }
            return sum;
        }
    };

    KERNEL_INLINE Window window(int group, int trial) const { return {of_[group][0][0] + trial}; }

private:
    KERNEL_INLINE void fill(const GridPart<Shape> &part, int group, Floats scales, int trial) {
        UNROLL
        for (int i = 0; i < dimensions; ++i) {
            const Floats x = splat(part.x[group * dimensions + i]);
            const Floats root = splat(part.roots[group * dimensions + i]);
            UNROLL
            for (int level = 0; level < levels; ++level) {
                const Floats apart = scales * (2.0f * level + 1.0f) - x;
                store(of_[group][i][level] + trial, root * apart * apart);
            }
        }
    }

    Tables of_[Shape::groups];
};

// With many, only what they stand for is.
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

    struct Window {
        const float *values;
        Floats x[dimensions], roots[dimensions];

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

    KERNEL_INLINE Window window(int group, int trial) const {
        Window window;
        window.values = of_[0] + trial;
        UNROLL
        for (int i = 0; i < dimensions; ++i) {
            window.x[i] = splat(part_.x[group * dimensions + i]);
            window.roots[i] = splat(part_.roots[group * dimensions + i]);
        }
        return window;
    }

private:
    const GridPart<Shape> &part_;
    float of_[Shape::levels][level_stride];
};

template <class Shape, int Levels>
struct TermsOf {
    using Type = ScaledLevels<Shape>;
};
template <class Shape>
struct TermsOf<Shape, 3> {
    using Type = TermTables<Shape>;
};

}  // namespace
