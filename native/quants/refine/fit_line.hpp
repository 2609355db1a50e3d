// The search for a group's scale and minimum, x = scale * level + lowest: levels, and the line
// that fits them best, in turns.
#pragma once
#include "fit_scale.hpp"

namespace {

// Sums over a group that a line's least squares need.
template <class Lane>
struct LineSums {
    Lane levels, squares, products;  // of weight * level, * level, * element
};

template <class Lane>
struct Line {
    Lane scale, lowest;
};

// The weighted errors under several lines. `Absolute` adds distances instead of their squares.
template <int Top, bool Absolute, int Size, int Count, class Lane>
KERNEL_INLINE void line_errors(const Lane *x, const Lane *weights, const Line<Lane> (&lines)[Count],
                               Lane (&errors)[Count]) {
    Lane inverses[Count];
    UNROLL
    for (int k = 0; k < Count; ++k) {
        inverses[k] = inverse_or_zero(lines[k].scale);
        errors[k] = Lane{};
    }
#pragma GCC unroll 2
    for (int i = 0; i < Size; ++i) {
        UNROLL
        for (int k = 0; k < Count; ++k) {
            const Lane scaled = (x[i] - lines[k].lowest) * inverses[k];
            const Lane level = nearest(maximum(minimum(scaled, broadcast<Lane>(Top)), Lane{}));
            const Lane miss = x[i] - (lines[k].scale * level + lines[k].lowest);
            errors[k] = errors[k] + weights[i] * (Absolute ? absolute(miss) : miss * miss);
        }
    }
}

template <int Top, int Size, int Count, class Lane>
KERNEL_INLINE void line_sums(const Lane *x, const Lane *weights, const Line<Lane> (&lines)[Count],
                             LineSums<Lane> (&sums)[Count]) {
    Lane inverses[Count];
    UNROLL
    for (int k = 0; k < Count; ++k) {
        inverses[k] = inverse_or_zero(lines[k].scale);
        sums[k] = {Lane{}, Lane{}, Lane{}};
    }
#pragma GCC unroll 2
    for (int i = 0; i < Size; ++i) {
        UNROLL
        for (int k = 0; k < Count; ++k) {
            const Lane scaled = (x[i] - lines[k].lowest) * inverses[k];
            const Lane level = nearest(maximum(minimum(scaled, broadcast<Lane>(Top)), Lane{}));
            const Lane weighted = weights[i] * level;
            sums[k].levels = sums[k].levels + weighted;
            sums[k].squares = sums[k].squares + weighted * level;
            sums[k].products = sums[k].products + weighted * x[i];
        }
    }
}

// Finds the line with the least squared error. With `Below`, its lowest is never above zero.
template <int Top, bool Below, int Size, class Lane>
class LineFit {
public:
    KERNEL_INLINE LineFit(const Lane *x, const Lane *weights) : x_(x), weights_(weights) {
        lowest_ = x[0];
        highest_ = x[0];
        for (int i = 0; i < Size; ++i) {
            lowest_ = minimum(x[i], lowest_);
            highest_ = maximum(x[i], highest_);
            sum_of_weights_ = sum_of_weights_ + weights[i];
            sum_of_x_ = sum_of_x_ + weights[i] * x[i];
        }
        if (Below) lowest_ = minimum(lowest_, Lane{});
    }

    KERNEL_INLINE void start_from(Line<Lane> line, int turns) {
#pragma GCC unroll 1
        for (int i = 0; i < turns; ++i) {
            const Line<Lane> lines[1] = {line};
            LineSums<Lane> sums[1];
            line_sums<Top, Size>(x_, weights_, lines, sums);
            line = keep(sums[0]);
        }
    }

    // Tries lines over parts of the elements' range: both ends, or one, move inwards.
    KERNEL_INLINE void try_starts(int starts) {
        const Lane range = highest_ - lowest_;
#pragma GCC unroll 1
        for (int i = 0; i < starts; ++i) {
            const float in = (static_cast<float>(i) + 0.5f) / static_cast<float>(starts);
            const Lane step = range * (in * 3.0f / Top - 0.5f / Top);
            const Lane inner = (range - step) / broadcast<Lane>(Top);
            const Lane innermost = (range - 2.0f * step) / broadcast<Lane>(Top);
            const Line<Lane> lines[3] = {
                {inner, lowest_}, {inner, lowest_ + step}, {innermost, lowest_ + step}};
            LineSums<Lane> sums[3];
            line_sums<Top, Size>(x_, weights_, lines, sums);
            for (int k = 0; k < 3; ++k) keep(sums[k]);
        }
    }

    KERNEL_INLINE void refine(int turns) { start_from(best_, turns); }

    KERNEL_INLINE const Line<Lane> &best() const { return best_; }
    KERNEL_INLINE const LineSums<Lane> &sums() const { return sums_; }
    KERNEL_INLINE Lane sum_of_weights() const { return sum_of_weights_; }
    KERNEL_INLINE Lane sum_of_x() const { return sum_of_x_; }

    // The best lowest for a scale and the levels of the best line.
    KERNEL_INLINE Lane lowest_for(Lane scale) const {
        const Lane offset = (sum_of_x_ - scale * sums_.levels) / sum_of_weights_;
        const Lane usual = select(less(Lane{}, sum_of_weights_), offset, Lane{});
        return Below ? minimum(usual, Lane{}) : usual;
    }

private:
    // Fits a line to the levels of sums, keeps it if it is the best, and returns the best.
    KERNEL_INLINE Line<Lane> keep(const LineSums<Lane> &sums) {
        const Lane determinant = sum_of_weights_ * sums.squares - sums.levels * sums.levels;
        Line<Lane> line{(sum_of_weights_ * sums.products - sum_of_x_ * sums.levels) / determinant,
                        (sums.squares * sum_of_x_ - sums.levels * sums.products) / determinant};
        if (Below) {
            const auto above_zero = less(Lane{}, line.lowest);
            line.lowest = select(above_zero, Lane{}, line.lowest);
            line.scale = select(above_zero, sums.products / sums.squares, line.scale);
        }
        // What the line takes off the error of nothing but zeros.
        const Lane gain = line.scale * (2.0f * sums.products - line.scale * sums.squares) +
                          line.lowest * (2.0f * sum_of_x_ - line.lowest * sum_of_weights_) -
                          2.0f * (line.scale * line.lowest * sums.levels);
        const auto better = and_(less(Lane{}, determinant), less(gain_, gain));
        gain_ = select(better, gain, gain_);
        best_.scale = select(better, line.scale, best_.scale);
        best_.lowest = select(better, line.lowest, best_.lowest);
        sums_.levels = select(better, sums.levels, sums_.levels);
        sums_.squares = select(better, sums.squares, sums_.squares);
        sums_.products = select(better, sums.products, sums_.products);
        return best_;
    }

    const Lane *x_, *weights_;
    Lane lowest_, highest_, sum_of_weights_{}, sum_of_x_{}, gain_{};
    Line<Lane> best_{};
    LineSums<Lane> sums_{};
};

}  // namespace
