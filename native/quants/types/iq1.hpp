// Shared by IQ1_S and IQ1_M: points of -1, 0 and 1, all shifted up or down by an eighth.
#pragma once
#include "grids.hpp"

namespace {

// Eight elements of a grid point, for the scalar port.
KERNEL_INLINE void put_shifted_point(float *x, uint64_t point, bool down, float scale) {
    const float shift = down ? -0.125f : 0.125f;
    for (int i = 0; i < 8; ++i) x[i] = scale * (grid_level(point, i) + shift);
}

// Sixteen elements of two grid points, counted in eighths: the shift is 1, or -1 where all bits
// of a byte of `down` are set. An eighth of the scale is exact, so the product is ggml's.
template <class Store>
KERNEL_INLINE void put_shifted_points(float *x, uint64_t first, uint64_t second, Pair down,
                                      float scale) {
    const Octets eighths = (Octets)Pair{first, second} << 3;
    put_levels<Store>(x, (Bytes)(eighths + ((Octets)down | 1)), scale * 0.125f);
}

}  // namespace
