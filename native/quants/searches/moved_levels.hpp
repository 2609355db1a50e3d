// ik_llama.cpp's search for the scale of a group that chooses between the levels of a table and the
// same ones, moved.
#pragma once
#include "../types/uneven_levels.hpp"
#include "uneven.hpp"

namespace {

template <class Lane>
KERNEL_INLINE IntOf<Lane> nearest_within(Lane value, int lowest, int highest) {
    using Int = IntOf<Lane>;
    const Int capped = minimum(nearest_int(value), broadcast_int<Int>(highest));
    return maximum(capped, broadcast_int<Int>(lowest));
}

// Brings a number into range. Where ik_llama.cpp casts it to an integer, NaN and what does not fit
// become the lowest; elsewhere a NaN gets the level above zero.
template <bool Casts, class Lane>
KERNEL_INLINE Lane in_range(Lane scaled) {
    const Lane highest = broadcast<Lane>(1e6f), odd = Casts ? -highest : highest * 1e-6f;
    const auto is_odd =
        Casts ? not_(less(scaled, broadcast<Lane>(0x1p31f))) : not_(equal(scaled, scaled));
    return minimum(select(is_odd, odd, scaled), highest);
}

// Replaces the importance of a group by a tiny one if it or the elements are as good as zero.
template <int Size, class Lane>
KERNEL_INLINE void replace_zero_importance(const Lane *x, Lane *importance) {
    constexpr float tiny = 1e-9f;
    const Lane least = broadcast<Lane>(Size * (tiny * tiny));
    Lane own{}, squares{}, products{};
    for (int i = 0; i < Size; ++i) {
        own = own + importance[i] * importance[i];
        squares = squares + x[i] * x[i];
        products = products + importance[i] * absolute(x[i]);
    }
    const auto usable = and_(and_(less(least, own), less(least, squares)), less(least, products));
    for (int i = 0; i < Size; ++i) {
        importance[i] = select(usable, importance[i], broadcast<Lane>(tiny));
    }
}

// Sums under an inverse scale and its negative, and what they change.
template <class Codes, int Size, class Lane>
KERNEL_INLINE void attempt(const Lane *x, const Lane *weights, Lane inverse, bool moved,
                           BestScale<Lane> &best) {
    Lane products[2], squares[2];
    const Lane both[2] = {inverse, -inverse};
    uneven_sums<Codes, Size>(x, weights, both, products, squares);
    best.settle(products[0], squares[0], moved);
    best.settle(products[1], squares[1], moved);
}

template <class Type, class Lane>
BestScale<Lane> fit_moved_levels(const Lane *x, const Lane *weights, Lane extreme) {
    using Codes = typename Type::template Codes<Type::plain, Lane>;
    using Moved = typename Type::template Codes<Type::moved, Lane>;
    constexpr int bottom = Type::plain.of[0], moved_bottom = Type::moved.of[0];
    constexpr int size = Type::group_size;
    const Lane usual = -extreme / static_cast<float>(bottom);
    BestScale<Lane> best{usual, Lane{}, no_lane<Lane>()};
    if constexpr (Type::tries_usual) {
        Lane products[2], squares[2];
        const Lane both[2] = {1.0f / usual, -(1.0f / usual)};
        uneven_sums<Codes, size>(x, weights, both, products, squares);
        const auto fits = Type::keeps_usual ? less(Lane{}, squares[0]) : not_(no_lane<Lane>());
        best.scale = select(fits, products[0] / squares[0], usual);
        best.score = select(fits, best.scale * products[0], Lane{});
        best.settle(products[1], squares[1]);
    }
    for (int i = -Type::tries; i <= Type::tries; ++i) {
        const Lane first = broadcast<Lane>(Type::step * i + bottom);
        const Lane moved_first = broadcast<Lane>(Type::step * i + moved_bottom);
        attempt<Codes, size>(x, weights, first / extreme, false, best);
        attempt<Moved, size>(x, weights, moved_first / extreme, true, best);
    }
    return best;
}

// Weighted squared errors of 32 levels under a scale.
template <class Lane>
KERNEL_INLINE Lane error_of(const Lane *x, const Lane *weights, const Lane *levels, Lane scale) {
    Lane sum{};
    for (int i = 0; i < 32; ++i) {
        const Lane error = x[i] - scale * levels[i];
        sum = sum + weights[i] * error * error;
    }
    return sum;
}

// The codes of a group's elements under a scale, as words of four, and their levels. Some types
// choose again which levels they use.
template <class Type, class Lane>
void choose_moved_levels(const Lane *x, const Lane *weights, Lane scale, MaskOf<Lane> &is_moved,
                         IntOf<Lane> *words, Lane *levels) {
    using Codes = typename Type::template Codes<Type::plain, Lane>;
    using Moved = typename Type::template Codes<Type::moved, Lane>;
    constexpr int size = Type::group_size;
    IntOf<Lane> moved_words[size / 4];
    Lane moved_levels[size];
    const Lane inverse = inverse_or_zero(scale);
    for (int i = 0; i < size; i += 4) {
        Lane scaled[4];
        UNROLL
        for (int j = 0; j < 4; ++j) scaled[j] = in_range<Type::casts>(inverse * x[i + j]) * Codes::unit;
        const auto codes = codes_of<Codes>(scaled, x + i, weights + i, scale);
        const auto moved = codes_of<Moved>(scaled, x + i, weights + i, scale);
        words[i / 4] = codes.word();
        moved_words[i / 4] = moved.word();
        UNROLL
        for (int j = 0; j < 4; ++j) {
            levels[i + j] = codes.level(j);
            moved_levels[i + j] = moved.level(j);
        }
    }
    if constexpr (Codes::is_weighted) {
        is_moved = less(error_of(x, weights, moved_levels, scale),
                        error_of(x, weights, levels, scale));
    }
    for (int i = 0; i < size / 4; ++i) words[i] = select(is_moved, moved_words[i], words[i]);
    for (int i = 0; i < size; ++i) levels[i] = select(is_moved, moved_levels[i], levels[i]);
}

}  // namespace
