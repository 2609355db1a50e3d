// The sixteen values of a float of 4 bits (E2M1), doubled to be whole: MXFP4's and NVFP4's levels.
#pragma once
#include "../simd.hpp"

namespace {

constexpr Bytes fp4_levels = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

}  // namespace
