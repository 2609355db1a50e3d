// Shared by TQ1_0 and TQ2_0: an element is -1, 0 or 1 times the largest.
#pragma once
#include "../extremes.hpp"

namespace {

// Rounds 256 elements to levels from 0 to 2.
template <class Lane>
class Trits;

template <>
class Trits<float> {
public:
    explicit Trits(const float *x)
        : largest_(largest_size<256>(x)), inverse_(inverse_or_zero(largest_)) {}

    float largest() const { return largest_; }
    static bool needs_fallback() { return false; }

    uint8_t of(float x) const { return static_cast<uint8_t>(long_of(x * inverse_) + 1); }

private:
    // lroundf gives 64 bits; ggml keeps the lowest byte.
    static int64_t long_of(float value) {
        if (absolute(value) < 0x1p23f) return round_half_away(value);
        const bool fits = absolute(value) < 0x1p63f;
        return fits ? static_cast<int64_t>(value) : INT64_MIN;
    }

    float largest_, inverse_;
};

template <>
class Trits<Floats> {
public:
    explicit KERNEL_INLINE Trits(const Floats *x)
        : largest_(float_of(largest_bits<256>(x))), inverse_(inverse_or_zero(largest_)) {}

    KERNEL_INLINE Floats largest() const { return largest_; }

    // If the largest or its inverse is not finite. ggml forgets a magnitude before a NaN, and then
    // levels can be anything.
    KERNEL_INLINE Mask needs_fallback() const {
        const Floats limit = broadcast(largest_float);
        return not_(and_(less(largest_, limit), less(inverse_, limit)));
    }

    // The levels of four neighbours, a byte each.
    KERNEL_INLINE LaneU8 four(const Floats *x) const {
        Ints levels[4];
        UNROLL
        for (int i = 0; i < 4; ++i) levels[i] = round_half_away(x[i] * inverse_);
        return (LaneU8)four_bytes(levels) + 1;
    }

private:
    Floats largest_, inverse_;
};

}  // namespace
