// Shared by MXFP4 and NVFP4: floats of 4 bits (E2M1).
#pragma once
#include "../extremes.hpp"

namespace {

// The sixteen values, doubled to be integers.
constexpr I8x16 fp4_levels = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Finds the nearest level under a scale, the first of two as near: best_index_mxfp4 of ggml.
template <class Lane, bool IsPowerOfTwo>
class Fp4Scale;

template <bool IsPowerOfTwo>
class Fp4Scale<float, IsPowerOfTwo> {
public:
    explicit Fp4Scale(float d) : d_(d) {}

    int32_t index(float x) const {
        int32_t best = 0;
        float least = absolute(x);
        for (int i = 1; i < 16; ++i) {
            const float miss = absolute(fp4_levels[i] * d_ - x);
            if (miss < least) {
                best = i;
                least = miss;
            }
        }
        return best;
    }

private:
    float d_;
};

// Counts half levels and looks up. A quotient of a float above a middle is above it too, for scales
// and middles have few bits; so this finds what ggml finds for numbers below 60 scales.
template <bool IsPowerOfTwo>
class Fp4Scale<Floats, IsPowerOfTwo> {
public:
    // Division by a scale of zero gives infinity or NaN: the first level wins.
    explicit KERNEL_INLINE Fp4Scale(Floats d) : half_(IsPowerOfTwo ? 2.0f / d : d * 0.5f) {}

    // How many half levels a number exceeds, with its sign: truncated is the float next towards
    // zero, because a number on a middle does not exceed it. Zero, which has none, gives INT32_MIN.
    KERNEL_INLINE Ints exceeded(Floats x) const {
        const Floats halves = IsPowerOfTwo ? x * half_ : x / half_;
        return truncate(float_of((Ints)((Words)bits_of(halves) - 1)));
    }

    // The indices of four neighbours.
    KERNEL_INLINE LaneU8 indices(const Floats *x) const {
        const Ints exceeding[4] = {exceeded(x[0]), exceeded(x[1]), exceeded(x[2]), exceeded(x[3])};
        const LaneI8 halves = four_bytes(exceeding);
        const U8x16 levels = {0, 1, 1, 2, 2, 3, 3, 4, 4, 4, 5, 5, 5, 5, 6, 6};
        const LaneU8 negative = (LaneU8)(halves < 0);
        // INT8_MIN stays, and finds zero.
        const LaneI8 size = (LaneI8)(((LaneU8)halves ^ negative) - negative);
        const LaneU8 magnitude = lookup_16(levels, (LaneU8)minimum(size, 15));
        const LaneU8 level = magnitude - (LaneU8)(size > 19);
        return level | ((level + 7) & negative & 8);
    }

private:
    Floats half_;  // or its inverse, which is exact too for a power of two
};

// The indices of four neighbours, a byte each.
template <bool IsPowerOfTwo>
KERNEL_INLINE int32_t fp4_indices(const Fp4Scale<float, IsPowerOfTwo> &scale, const float *x) {
    const int32_t low = scale.index(x[0]) | scale.index(x[1]) << 8;
    return low | scale.index(x[2]) << 16 | scale.index(x[3]) << 24;
}
template <bool IsPowerOfTwo>
KERNEL_INLINE int32_t fp4_pairs(const Fp4Scale<float, IsPowerOfTwo> &scale, const float *low,
                                const float *high) {
    return fp4_indices(scale, low) | fp4_indices(scale, high) << 4;
}
template <bool IsPowerOfTwo>
KERNEL_INLINE Ints fp4_pairs(const Fp4Scale<Floats, IsPowerOfTwo> &scale, const Floats *low,
                             const Floats *high) {
    const Ints joined = (Ints)scale.indices(low) | (Ints)scale.indices(high) << 4;
    return deinterleave((LaneU8)joined);
}

}  // namespace
