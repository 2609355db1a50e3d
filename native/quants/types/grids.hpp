// The grids of IQ1, IQ2 and IQ3 as bytes to load, and the signs that go with them.
#pragma once
#include "../simd.hpp"
#include "grid_codes.hpp"

namespace {

// Points of several levels each, the first in the lowest byte.
template <class Point, int Count>
struct Grid {
    Point points[Count];
};

template <class Point, int Bits, int Count>
constexpr Grid<Point, Count> grid_of(const uint16_t (&codes)[Count],
                                     const int8_t (&levels)[1 << Bits]) {
    Grid<Point, Count> grid{};
    for (int i = 0; i < Count; ++i) {
        for (unsigned j = 0; j < sizeof(Point); ++j) {
            const uint8_t level = static_cast<uint8_t>(levels[codes[i] >> Bits * j & ((1 << Bits) - 1)]);
            grid.points[i] |= static_cast<Point>(level) << 8 * j;
        }
    }
    return grid;
}

constexpr int8_t iq1_levels[4] = {-1, 0, 1, 0};  // code 3 does not occur
constexpr int8_t iq2_levels[4] = {8, 25, 43, 0};
constexpr int8_t iq3_xxs_levels[8] = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr int8_t iq3_s_levels[8] = {1, 3, 5, 7, 9, 11, 13, 15};

constexpr auto iq1_grid = grid_of<uint64_t, 2>(iq1_codes, iq1_levels);
constexpr auto iq2_xxs_grid = grid_of<uint64_t, 2>(iq2_xxs_codes, iq2_levels);
constexpr auto iq2_xs_grid = grid_of<uint64_t, 2>(iq2_xs_codes, iq2_levels);
constexpr auto iq2_s_grid = grid_of<uint64_t, 2>(iq2_s_codes, iq2_levels);
constexpr auto iq3_xxs_grid = grid_of<uint32_t, 3>(iq3_xxs_codes, iq3_xxs_levels);
constexpr auto iq3_s_grid = grid_of<uint32_t, 3>(iq3_s_codes, iq3_s_levels);

// Eight signs of which seven are stored: their number is even.
KERNEL_INLINE uint32_t even_signs(uint32_t bits) {
    const uint32_t seven = bits & 127, folded = seven ^ seven >> 4;
    return seven | (0x6996u >> (folded & 15) & 1) << 7;
}

KERNEL_INLINE int grid_level(uint64_t point, int place) {
    return static_cast<int8_t>(point >> 8 * place);
}

// Eight elements of a grid point, the scalar port's way.
KERNEL_INLINE void put_point(float *x, uint64_t point, uint32_t signs, float scale) {
    for (int i = 0; i < 8; ++i) {
        x[i] = scale * grid_level(point, i) * (signs >> i & 1 ? -1.0f : 1.0f);
    }
}

// Sixteen elements of two grid points. Negating a level negates its product, zeros included.
template <class Store>
KERNEL_INLINE void put_points(float *x, uint64_t first, uint64_t second, uint32_t signs,
                              float scale) {
    const Bytes negative = (Bytes)spread_bits(signs);
    put_levels<Store>(x, ((Bytes)Pair{first, second} ^ negative) - negative, scale);
}

}  // namespace
