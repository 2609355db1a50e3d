// Shared by Q4_K and Q5_K: eight groups of 32 elements with a scale and a minimum of 6 bits.
#pragma once
#include "../simd.hpp"

namespace {

struct ScaleMinimum {
    uint8_t scale, minimum;
};

// get_scale_min_k4: the last four groups keep their high bits in the bytes of the first four.
KERNEL_INLINE ScaleMinimum scale_minimum(const uint8_t (&packed)[12], int group) {
    const uint8_t *at = packed + group % 4;
    if (group < 4) return {uint8_t(at[0] & 63), uint8_t(at[4] & 63)};
    return {uint8_t((at[8] & 15) | at[0] >> 6 << 4), uint8_t(at[8] >> 4 | at[4] >> 6 << 4)};
}

}  // namespace
