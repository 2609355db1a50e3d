// Shared by Q2_K, Q3_K and Q6_K: in each half of a block, elements 32 apart share a byte.
#pragma once
#include "../lane.hpp"

namespace {

// Levels 4i to 4i + 3 of each quarter of a half block, as bytes.
template <class Int>
struct Quarters {
    Int of[4];

    KERNEL_INLINE Quarters(const Int *levels, int i) {
        UNROLL
        for (int j = 0; j < 4; ++j) {
            const Int *four = levels + 32 * j + 4 * i;
            of[j] = pack_bytes(four[0], four[1], four[2], four[3]);
        }
    }

    // Two bits of each, from bit `first` on, in one byte.
    KERNEL_INLINE Int two_bits(int first) const {
        Int joined{};
        UNROLL
        for (int j = 0; j < 4; ++j) {
            joined |= (shift_right(of[j], first) & 0x03030303) << 2 * j;
        }
        return joined;
    }

    // One bit of each; `half` leaves space for the other half's.
    KERNEL_INLINE Int one_bit(int which, int half) const {
        Int joined{};
        UNROLL
        for (int j = 0; j < 4; ++j) {
            joined |= (shift_right(of[j], which) & 0x01010101) << (4 * half + j);
        }
        return joined;
    }
};

}  // namespace
