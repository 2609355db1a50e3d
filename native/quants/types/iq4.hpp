// The sixteen levels of IQ4_NL and IQ4_XS, closer together around zero.
#pragma once
#include "../simd.hpp"

namespace {

constexpr Bytes iq4_levels = {-127, -104, -83, -65, -49, -35, -22, -10,
                              1,    13,   25,  38,  53,  69,  89,  113};

}  // namespace
