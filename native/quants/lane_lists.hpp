// numbers_of, for those simd_*.hpp whose machines have no instruction for it.
#pragma once

namespace {

// For every mask, the numbers of its lanes in order; zeros fill up.
template <int Lanes>
struct LaneLists {
    uint16_t of[1 << Lanes][Lanes] = {};
    constexpr LaneLists() {
        for (int mask = 0; mask < 1 << Lanes; ++mask) {
            for (int lane = 0, count = 0; lane < Lanes; ++lane) {
                if (mask >> lane & 1) of[mask][count++] = static_cast<uint16_t>(lane);
            }
        }
    }
};

KERNEL_INLINE Ints compress_lanes(uint32_t mask) {
    if constexpr (lanes <= 8) {
        static constexpr LaneLists<lanes <= 8 ? lanes : 1> lists;
        return load_halves(reinterpret_cast<const uint8_t *>(lists.of[mask]));
    } else {
        Ints numbers = {};
        for (int count = 0; mask != 0; mask &= mask - 1) numbers[count++] = __builtin_ctz(mask);
        return numbers;
    }
}

}  // namespace
