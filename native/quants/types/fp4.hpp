// What MXFP4 and NVFP4 share: floats of 4 bits (E2M1).
#pragma once
#include "../extremes.hpp"

namespace {

// The sixteen values, doubled to be whole.
constexpr Bytes fp4_levels = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Finds the nearest level under a scale, the first of two as near: best_index_mxfp4 of ggml.
template <class Lane>
class Fp4Scale;

template <>
class Fp4Scale<float> {
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

// Counts the middles between levels that a number exceeds. Differences are exact near a middle, so
// this finds what ggml finds, unless a number is so large that they all round to itself.
template <>
class Fp4Scale<Floats> {
public:
    // A scale of zero makes all levels the same: the first of them wins.
    explicit KERNEL_INLINE Fp4Scale(Floats d) {
        const Floats scale = select(equal(d, splat(0.0f)), splat(__builtin_inff()), d);
        constexpr float middles[7] = {0.5f, 1.5f, 2.5f, 3.5f, 5.0f, 7.0f, 10.0f};
        for (int i = 0; i < 7; ++i) middles_[i] = middles[i] * scale;
    }

    KERNEL_INLINE Ints index(Floats x) const {
        const Floats size = absolute(x);
        Ints index = select(less(x, -middles_[0]), splat(8), splat(0));
        UNROLL
        for (int i = 0; i < 7; ++i) index = increment(index, less(middles_[i], size));
        return index;
    }

private:
    Floats middles_[7];
};

// The indices of four neighbours, a byte each.
template <class Lane>
KERNEL_INLINE IntOf<Lane> fp4_indices(const Fp4Scale<Lane> &scale, const Lane *x) {
    const IntOf<Lane> low = scale.index(x[0]) | scale.index(x[1]) << 8;
    return low | scale.index(x[2]) << 16 | scale.index(x[3]) << 24;
}

}  // namespace
