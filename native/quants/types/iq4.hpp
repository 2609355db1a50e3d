// Shared by IQ4_NL and IQ4_XS: sixteen levels.
#pragma once
#include "uneven_levels.hpp"

namespace {

constexpr I8x16 iq4_levels = {-127, -104, -83, -65, -49, -35, -22, -10,
                              1,    13,   25,  38,  53,  69,  89,  113};

template <class Lane>
using Iq4Codes = UnevenCodes<iq4_table, Lane>;

}  // namespace
