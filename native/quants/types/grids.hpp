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
            const uint8_t level =
                static_cast<uint8_t>(levels[codes[i] >> Bits * j & ((1 << Bits) - 1)]);
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

// Eight signs as eight bytes, all ones where an element is negative, by the signs that are stored:
// all of them, or seven; the eighth then makes their number even.
template <int Stored>
struct SignBytes {
    uint64_t of[1 << Stored] = {};
    constexpr SignBytes() {
        for (int signs = 0; signs < 1 << Stored; ++signs) {
            int all = signs;
            if (Stored == 7) all |= __builtin_parity(static_cast<unsigned>(signs)) << 7;
            for (int i = 0; i < 8; ++i) of[signs] |= uint64_t{all >> i & 1 ? 255u : 0u} << 8 * i;
        }
    }
};

constexpr SignBytes<8> all_sign_bytes;
constexpr SignBytes<7> even_sign_bytes;

// Sixteen numbers of nine bits; the ninth bits are stored separately.
KERNEL_INLINE void add_ninths(const uint8_t *lower, const uint8_t *ninths, uint16_t *numbers) {
    const U8x16 low = load_u8x16(lower), high = spread_bits(read<uint16_t>(ninths)) & 1;
    const U8x16 both[] = {
        __builtin_shufflevector(low, high, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23),
        __builtin_shufflevector(low, high, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                                31)};
    memcpy(numbers, both, sizeof both);
}

// The scales of IQ2_XS and IQ2_S, a nibble each, in low nibbles first.
struct NibbleScales {
    float of[16];

    KERNEL_INLINE NibbleScales(const uint8_t *bytes, float d) {
        const I8x16 levels = (I8x16)spread_nibbles(bytes);
        UNROLL
        for (int part = 0; part < 16 / lanes; ++part) {
            const Floats level = to_floats(widen(levels, part));
            store(of + part * lanes, broadcast(d) * (0.5f + level) * 0.25f);
        }
    }

    KERNEL_INLINE float of_pair(int i) const { return of[i / 2 + i % 2 * 8]; }
};

// Sixteen elements of two grid points. Negating a level negates its product, zeros included.
template <class Store>
KERNEL_INLINE void put_points(float *x, U64x2 points, U64x2 signs, float scale) {
    put_levels<Store>(x, ((I8x16)points ^ (I8x16)signs) - (I8x16)signs, scale);
}

// A block of IQ2_XS or IQ2_S.
template <class Store, class Block>
KERNEL_INLINE void put_nibble_scaled(float *x, const Block &block, const NibbleScales &scales) {
    UNROLL
    for (int i = 0; i < 32; i += 2) {
        put_points<Store>(x + 8 * i, U64x2{block.point(i), block.point(i + 1)},
                          U64x2{block.sign_bytes(i), block.sign_bytes(i + 1)},
                          scales.of_pair(i / 2));
    }
}

}  // namespace
