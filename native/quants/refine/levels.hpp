// Levels of elements under any scale, their errors, and the sums that least squares need.
//
// All arguments are clamped before they are rounded, so that floats and Floats round alike and
// every instruction set makes the same bytes.
#pragma once
#include "../types/iq4.hpp"

namespace {

// Whole numbers from `Low` to `High`.
template <int Low, int High>
struct EvenLevels {
    static constexpr float low = Low, high = High;
    static constexpr float spread = 1.0f / (High - Low);  // one level, as a share of all

    template <class Lane>
    static KERNEL_INLINE Lane one(Lane scaled) {
        return nearest(maximum(minimum(scaled, broadcast<Lane>(High)), broadcast<Lane>(Low)));
    }

    template <class Lane>
    static KERNEL_INLINE void four(const Lane *scaled, Lane *levels) {
        UNROLL
        for (int j = 0; j < 4; ++j) levels[j] = one(scaled[j]);
    }
};

// The sixteen levels of IQ4.
struct UnevenLevels {
    static constexpr float low = -127, high = 113;
    static constexpr float spread = 1.0f / 16;

    template <class Lane>
    static KERNEL_INLINE Iq4Codes<Lane> codes(const Lane *scaled) {
        constexpr float unit = Iq4Codes<Lane>::unit;
        Lane inside[4];
        UNROLL
        for (int j = 0; j < 4; ++j) {
            const Lane below = minimum(scaled[j] * unit, broadcast<Lane>(120.0f * unit));
            inside[j] = maximum(below, broadcast<Lane>(-127.5f * unit));
        }
        return Iq4Codes<Lane>(inside);
    }

    template <class Lane>
    static KERNEL_INLINE void four(const Lane *scaled, Lane *levels) {
        const Iq4Codes<Lane> nearest_codes = codes(scaled);
        UNROLL
        for (int j = 0; j < 4; ++j) levels[j] = nearest_codes.level(j);
    }
};

// The levels of four elements under the inverse of a scale.
template <class Levels, class Lane>
KERNEL_INLINE void four_levels(const Lane *x, Lane inverse, Lane *levels) {
    Lane scaled[4];
    UNROLL
    for (int j = 0; j < 4; ++j) scaled[j] = x[j] * inverse;
    Levels::four(scaled, levels);
}

// The weighted errors of `Size` elements under several scales, each with its nearest levels.
template <class Levels, int Size, int Count, class Lane>
KERNEL_INLINE void errors_of(const Lane *x, const Lane *weights, const Lane (&scales)[Count],
                             Lane (&errors)[Count]) {
    Lane inverses[Count];
    UNROLL
    for (int k = 0; k < Count; ++k) {
        inverses[k] = inverse_or_zero(scales[k]);
        errors[k] = Lane{};
    }
#pragma GCC unroll 1
    for (int i = 0; i < Size; i += 4) {
        UNROLL
        for (int k = 0; k < Count; ++k) {
            Lane levels[4];
            four_levels<Levels>(x + i, inverses[k], levels);
            UNROLL
            for (int j = 0; j < 4; ++j) {
                const Lane miss = x[i + j] - scales[k] * levels[j];
                errors[k] = errors[k] + weights[i + j] * (miss * miss);
            }
        }
    }
}

// The sums of weight * element * level, and of weight * level * level: their quotient is the
// scale with the least error for these levels.
template <class Lane>
struct ScaleSums {
    Lane products, squares;

    KERNEL_INLINE Lane scale() const {
        return select(less(Lane{}, squares), products / squares, Lane{});
    }
};

template <class Levels, int Size, int Count, class Lane>
KERNEL_INLINE void sums_of(const Lane *x, const Lane *weights, const Lane (&inverses)[Count],
                           ScaleSums<Lane> (&sums)[Count]) {
    UNROLL
    for (int k = 0; k < Count; ++k) sums[k] = {Lane{}, Lane{}};
#pragma GCC unroll 1
    for (int i = 0; i < Size; i += 4) {
        UNROLL
        for (int k = 0; k < Count; ++k) {
            Lane levels[4];
            four_levels<Levels>(x + i, inverses[k], levels);
            UNROLL
            for (int j = 0; j < 4; ++j) {
                const Lane weighted = weights[i + j] * levels[j];
                sums[k].products = sums[k].products + weighted * x[i + j];
                sums[k].squares = sums[k].squares + weighted * levels[j];
            }
        }
    }
}

// The unit with the least weighted error so far, of which `Count` numbers are multiples.
template <class Levels, int Count, class Lane>
struct SharedUnit {
    const Lane *numbers, *weights;
    Lane best{}, least = broadcast<Lane>(largest_float);

    // Tries a unit, and then the one that fits its levels best.
    KERNEL_INLINE void attempt(Lane unit) {
#pragma GCC unroll 1
        for (int turn = 0; turn < 2; ++turn) {
            const Lane inverse = inverse_or_zero(unit);
            Lane loss{}, products{}, squares{};
            for (int i = 0; i < Count; ++i) {
                const Lane level = Levels::one(numbers[i] * inverse);
                const Lane miss = numbers[i] - unit * level;
                loss = loss + weights[i] * (miss * miss);
                products = products + weights[i] * (numbers[i] * level);
                squares = squares + weights[i] * (level * level);
            }
            const auto better = less(loss, least);
            least = select(better, loss, least);
            best = select(better, unit, best);
            unit = select(less(Lane{}, squares), products / squares, unit);
        }
    }
};

// A later candidate must be better by more than the rounding errors of sums.
constexpr float clearly = 1.0f - 0x1.0p-15f;

template <class Lane>
KERNEL_INLINE MaskOf<Lane> is_finite_error(Lane error) {
    return less(error, broadcast<Lane>(largest_float));
}

}  // namespace
