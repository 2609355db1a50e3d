// From a super-block of 256 elements to parts with signs, weights, points and scales, for all
// types on the grids of IQ2 and IQ3.
//
// A type's Rule says
//   Shape, step, candidates, again   what grid.hpp reads;
//   grid                             the name of its grid;
//   spread                           how often the mean square counts in importance;
//   plain_weight, weighs_by_mean     a weight where there is no importance, usually the square of
//                                    an element, and whether it is of the mean square too;
//   least                            what highest element makes a part more than zeros;
//   even_signs                       whether seven of eight signs are stored.
#pragma once
#include "../codec.hpp"
#include "grid.hpp"

namespace {

constexpr int superblock_size = 256;

// sigma2 of ggml.
KERNEL_INLINE float mean_square_of(const float *x, float spread) {
    return spread * sum_of_squares(x, superblock_size) / superblock_size;
}

// The same of a block per lane.
KERNEL_INLINE Floats mean_squares_of(const float *x, float spread) {
    return spread * sums_of_squares(x, superblock_size) / static_cast<float>(superblock_size);
}

template <class Rule, class = void>
constexpr bool has_plain_weight = false;
template <class Rule>
constexpr bool has_plain_weight<Rule, decltype(void(&Rule::plain_weight))> = true;

// The weights of elements; `importance` may be null.
template <class Rule>
KERNEL_INLINE void weigh_on_grid(const float *x, const float *importance, float mean_square,
                                 int count, float *weights) {
    for (int i = 0; i < count; ++i) {
        const float square = x[i] * x[i];
        if (importance) {
            weights[i] = importance[i] * square_root(mean_square + square);
        } else if constexpr (has_plain_weight<Rule>) {
            weights[i] = Rule::plain_weight(square, mean_square);
        } else {
            weights[i] = square;
        }
    }
}

// The first element that is not finite, or the first of all.
inline int suspect(const float *x, int count) {
    for (int i = 0; i < count; ++i) {
        if (!is_finite(x[i])) return i;
    }
    return 0;
}

// The content of a block, in order of elements. `empty` parts hold zeros.
template <class Shape>
struct GridBlock {
    static constexpr int parts = superblock_size / Shape::size;
    float scales[parts] = {};
    uint16_t points[superblock_size / Shape::dimensions] = {};
    uint8_t signs[superblock_size / 8] = {};
    bool empty[parts] = {};
    float highest_scale = 0.0f;

    // The level of a part's scale, from 0 to 15.
    uint32_t scale_level(int part, float inverse) const {
        const int level = nearest_int(0.5f * (inverse * scales[part] - 1.0f));
        return static_cast<uint32_t>(maximum(0, minimum(15, level)));
    }

    // Those of all parts, two to a byte.
    void store_scale_levels(float inverse, uint8_t (&bytes)[parts / 2]) const {
        for (int i = 0; i < parts; ++i) {
            bytes[i / 2] |= static_cast<uint8_t>(scale_level(i, inverse) << i % 2 * 4);
        }
    }

    // Four times seven signs, of the 32 elements from 32 * i on.
    uint32_t packed_signs(int i) const {
        uint32_t packed = 0;
        for (int j = 0; j < 4; ++j) packed |= static_cast<uint32_t>(signs[4 * i + j]) << 7 * j;
        return packed;
    }
};

template <class Rule>
class GridBlockFit {
    using Shape = typename Rule::Shape;
    static constexpr int size = Shape::size, parts = superblock_size / size;

public:
    using Content = GridBlock<Shape>;

    GridBlockFit(const float *x, const float *importance, float mean_square, const Neighbours &grid)
        : x_(x), importance_(importance), mean_square_(mean_square), grid_(grid) {}

    // Returns nothing_wrong, or an element of the part at which ggml aborts.
    int64_t run(Content &block) {
        for (int i = 0; i < parts; ++i) {
            weigh(i);
            const uint32_t negative = take_signs(i);
            for (int j = 0; j < size; j += 8) {
                block.signs[(i * size + j) / 8] = stored_signs(i, j, negative >> j & 255);
            }
            highest_[i] = highest_of(parts_[i].x);
        }
        Rule::start(parts_, highest_, ranges_, scales_);
        uint32_t requested = 0;
        for (int i = 0; i < parts; ++i) {
            if (highest_[i] < Rule::least || ranges_[i] <= 0.0f) {
                block.empty[i] = true;
                memset(block.signs + i * size / 8, 0, size / 8);
            } else {
                requested |= 1u << i;
            }
        }
        const int wrong = fit_to_grid<Rule>(parts_, grid_, ranges_, scales_, requested, fits_);
        if (wrong >= 0) return wrong * size + suspect(x_ + wrong * size, size);
        for (; requested != 0; requested &= requested - 1) take(__builtin_ctz(requested), block);
        return nothing_wrong;
    }

private:
    void weigh(int i) {
        GridPart<Shape> &part = parts_[i];
        weigh_on_grid<Rule>(x_ + i * size, importance_ ? importance_ + i * size : nullptr,
                            mean_square_, size, part.weights);
        for (int j = 0; j < size; ++j) part.roots[j] = square_root(part.weights[j]);
    }

    // The signs of a part's elements; keeps their magnitudes.
    KERNEL_INLINE uint32_t take_signs(int i) {
        uint32_t signs = 0;
        UNROLL
        for (int j = 0; j < size; j += lanes) {
            const Floats x = load(x_ + i * size + j);
            const Mask negative = or_(less(x, broadcast(0.0f)), is_nan(x));
            store(parts_[i].x + j, select(negative, -x, x));
            signs |= movemask(negative) << j;
        }
        return signs;
    }

    // Signs of eight elements of a part from `first` on. If their number is odd, the sign of the
    // least important element is flipped.
    uint8_t stored_signs(int i, int first, uint32_t signs) {
        const float *x = x_ + i * size + first;
        if (Rule::even_signs && __builtin_parity(signs)) {
            const float *weights = parts_[i].weights + first;
            float least = weights[0] * x[0] * x[0];
            int index = 0;
            for (int j = 1; j < 8; ++j) {
                const float matter = weights[j] * x[j] * x[j];
                index = matter < least ? j : index;
                least = matter < least ? matter : least;
            }
            parts_[i].x[first + index] = -parts_[i].x[first + index];
            signs ^= 1u << index;
        }
        return static_cast<uint8_t>(Rule::even_signs ? signs & 127 : signs);
    }

    static KERNEL_INLINE float highest_of(const float *x) {
        if constexpr (portable) {  // with a NaN, the result depends on ggml's order
            float highest = x[0];
            for (int j = 1; j < size; ++j) highest = maximum(highest, x[j]);
            return highest;
        }
        Floats highest = load(x);
        UNROLL
        for (int j = lanes; j < size; j += lanes) highest = maximum(highest, load(x + j));
        return highest_lane(highest);
    }

    void take(int i, Content &block) const {
        const GridFit<Shape> &result = fits_[i];
        uint8_t *signs = block.signs + i * size / 8;
        memcpy(block.points + i * Shape::groups, result.points, sizeof result.points);
        for (int j = 0; result.flipped && j < size / 8; ++j) {
            signs[j] ^= Rule::even_signs ? 127 : 255;
        }
        block.scales[i] = result.scale;
        block.highest_scale = maximum(block.highest_scale, result.scale);
    }

    const float *x_, *importance_;
    const float mean_square_;
    const Neighbours &grid_;
    GridPart<Shape> parts_[parts];
    float highest_[parts], ranges_[parts], scales_[parts];
    GridFit<Shape> fits_[parts];
};

// Where most types start the search for a scale: the highest element gets the highest level.
template <class OfShape>
struct StartsAtHighest {
    using Shape = OfShape;

    template <int Parts>
    static KERNEL_INLINE void start(const GridPart<Shape> (&)[Parts], const float (&highest)[Parts],
                                    float (&ranges)[Parts], float (&scales)[Parts]) {
        for (int i = 0; i < Parts; ++i) {
            ranges[i] = highest[i];
            scales[i] = highest[i] / (2 * Shape::levels - 1);
        }
    }
};

template <class Type>
int64_t encode_on_grid(const float *src, uint8_t *dst, int64_t rows, int64_t width,
                       const float *weights) {
    using Rule = typename Type::Rule;
    const Neighbours &grid = *ggufkit_neighbours(Type::grid);
    const int64_t blocks_of_row = width / superblock_size, blocks = rows * blocks_of_row;
    const bool by_mean = weights || Rule::weighs_by_mean;
    float means[lanes] = {};
    for (int64_t block = 0; block < blocks; ++block) {
        const float *x = src + block * superblock_size;
        const int lane = static_cast<int>(block % lanes);
        const bool is_tile = !portable && block - lane + lanes <= blocks;
        if (by_mean && !is_tile) means[lane] = mean_square_of(x, Rule::spread);
        if (by_mean && is_tile && lane == 0) store(means, mean_squares_of(x, Rule::spread));
        const int64_t column = block % blocks_of_row * superblock_size;
        typename Type::Fit::Content content;
        typename Type::Fit fit(x, weights ? weights + column : nullptr, means[lane], grid);
        const int64_t wrong = fit.run(content);
        if (wrong != nothing_wrong) return block * superblock_size + wrong;
        write(dst + block * Type::block_bytes, Type::pack(x, content));
    }
    return nothing_wrong;
}

// For a type whose Fit finds the content of a block, and whose `pack` lays it out.
template <class Type>
struct Rows<Type, decltype(void(Type::grid))> {
    static constexpr Codec functions() {
        Codec codec{};
        codec.encode = encode<Type, encode_on_grid<Type>>;
        codec.decode = decode<Type>;
        codec.validate = validate<Type>;
        return codec;
    }
};

}  // namespace
