// Shared by IQ1_S and IQ1_M: points of -1, 0 and 1, all shifted up or down by an eighth.
#pragma once
#include "grids.hpp"

namespace {

// Sixteen elements of two grid points, counted in eighths: the shift is 1, or -1 where all bits
// of a byte of `down` are set. An eighth of the scale is exact, so the product is ggml's.
template <class Store>
KERNEL_INLINE void put_shifted_points(float *x, uint64_t first, uint64_t second, U64x2 down,
                                      float scale) {
    const U8x16 eighths = (U8x16)U64x2{first, second} << 3;
    put_levels<Store>(x, (I8x16)(eighths + ((U8x16)down | 1)), scale * 0.125f);
}

}  // namespace
