// What TQ1_0 and TQ2_0 share: an element is -1, 0 or 1 times the largest.
#pragma once
#include "../extremes.hpp"

namespace {

// Rounds elements to levels from 0 to 2.
template <class Lane>
class Trits {
public:
    explicit KERNEL_INLINE Trits(Lane largest) : inverse_(inverse_or_zero(largest)) {}

    KERNEL_INLINE IntOf<Lane> of(Lane x) {
        const Lane scaled = x * inverse_;
        if constexpr (is_scalar<Lane>) {
            return static_cast<int32_t>((long_of(scaled) + 1) & 255);
        } else {
            regular_ = both(regular_, less(absolute(scaled), all<Lane>(1.5f)));
            return round_half_away(scaled) + 1;
        }
    }

    // Where an element was out of range: ggml forgets a size that a NaN follows.
    KERNEL_INLINE MaskOf<Lane> strange() const { return opposite(regular_); }

private:
    // lroundf: 64 bits, of which ggml keeps the lowest byte.
    static int64_t long_of(float value) {
        if (absolute(value) < 0x1p23f) return round_half_away(value);
        const bool fits = absolute(value) < 0x1p63f;
        return fits ? static_cast<int64_t>(value) : INT64_MIN;
    }

    Lane inverse_;
    MaskOf<Lane> regular_ = everywhere<Lane>();
};

}  // namespace
