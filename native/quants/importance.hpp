// Importance weights: one per column of a matrix, handed out block by block, or a block per lane.
#pragma once
#include "simd.hpp"

namespace {

#if defined(GGUFKIT_PORTABLE)
constexpr bool portable = true;
#else
constexpr bool portable = false;
#endif

// The weights of one block, or null, and the mean square of its row for Q4_0 to Q5_1.
struct BlockImportance {
    const float *weights;
    float row_mean_square;

    template <int Count>
    KERNEL_INLINE void load(int first, float *part) const {
        memcpy(part, weights + first, Count * sizeof *part);
    }
};

// The same for a block per lane. Weights load in parts: a whole tile of weights and one of elements
// would fill the L1 cache.
struct LaneImportance {
    const float *of_lane[lanes];
    Floats row_mean_square;

    template <int Count>
    KERNEL_INLINE void load(int first, Floats *weights) const {
        UNROLL
        for (int i = 0; i < Count; i += lanes) load_square(of_lane, first + i, weights + i);
    }

    BlockImportance of(int lane) const { return {of_lane[lane], row_mean_square[lane]}; }
};

// A type says `static constexpr bool weighs_by_row = true` to get the mean squares.
template <class Type, class = void>
constexpr bool weighs_by_row = false;
template <class Type>
constexpr bool weighs_by_row<Type, decltype(void(Type::weighs_by_row))> = Type::weighs_by_row;

// The sum over a row is one long chain of additions in ggml's order, so several rows run in
// parallel.
KERNEL_INLINE Floats sums_of_squares(const float *src, int64_t width) {
    const float *of_lane[lanes];
    for (int lane = 0; lane < lanes; ++lane) of_lane[lane] = src + lane * width;
    Floats sum = broadcast(0.0f);
    for (int64_t i = 0; i < width; i += lanes) {
        Floats x[lanes];
        load_square(of_lane, i, x);
        UNROLL
        for (int j = 0; j < lanes; ++j) sum = sum + x[j] * x[j];
    }
    return sum;
}

KERNEL_INLINE float sum_of_squares(const float *row, int64_t width) {
    float sum = 0.0f;
    for (int64_t i = 0; i < width; ++i) sum += row[i] * row[i];
    return sum;
}

// Hands out the importance of all blocks in order.
template <bool ByRow>
class ImportanceWalk {
public:
    ImportanceWalk(const float *src, int64_t rows, int64_t width, const float *weights)
        : src_(src), rows_(rows), width_(width), weights_(weights) {}

    template <int Size>
    KERNEL_INLINE BlockImportance next_block() {
        if constexpr (ByRow) {
            if (column_ == 0 && row_ % lanes == 0) look_ahead();
        }
        const BlockImportance current{weights_ + column_, ByRow ? ahead_[row_ % lanes] : 0.0f};
        column_ += Size;
        if (column_ == width_) {
            column_ = 0;
            ++row_;
        }
        return current;
    }

    template <int Size>
    KERNEL_INLINE LaneImportance next_tile() {
        LaneImportance tile{};
        UNROLL
        for (int lane = 0; lane < lanes; ++lane) {
            const BlockImportance block = next_block<Size>();
            tile.of_lane[lane] = block.weights;
            tile.row_mean_square[lane] = block.row_mean_square;
        }
        return tile;
    }

private:
    void look_ahead() {
        const float *row = src_ + row_ * width_, width = static_cast<float>(width_);
        const int64_t remaining = rows_ - row_;
        if (!portable && remaining >= lanes) {
            store(ahead_, sums_of_squares(row, width_) / width);
        } else {
            for (int i = 0; i < lanes && i < remaining; ++i) {
                ahead_[i] = sum_of_squares(row + i * width_, width_) / width;
            }
        }
    }

    const float *src_;
    int64_t rows_, width_;
    const float *weights_;
    int64_t row_ = 0, column_ = 0;
    float ahead_[lanes] = {};
};

}  // namespace
