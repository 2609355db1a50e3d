// Q6_0 of ik_llama.cpp: 32 levels of 6 bits around 32, the upper two bits separate, and their
// scale.
#pragma once
#include "../searches/stepped.hpp"
#include "legacy.hpp"

namespace {

struct Q6_0 : EncodesAnyLane<Q6_0> {
    static constexpr uint32_t id = 133, block_size = 32, block_bytes = 26;
    static constexpr const char *name = "Q6_0";
    static constexpr bool weighs_by_row = true;
    static constexpr Weights weights = weights_taken;

    template <class Lane, class Importance>
    static MaskOf<Lane> encode(const Lane *x, const Importance &importance, uint8_t *bytes) {
        using Int = IntOf<Lane>;
        Lane weights_here[32], fitted[32], sum{};
        if constexpr (is_weighted<Importance>) {
            weigh_by_row(x, importance, weights_here);
        } else {
            for (int i = 0; i < 32; ++i) weights_here[i] = x[i] * x[i];
        }
        const Lane scale = SteppedSearch<32, 32, Lane>(x, weights_here).run(fitted);
        Int levels[32], uppers[2];
        for (int i = 0; i < 32; ++i) {
            levels[i] = truncate(fitted[i]) + 32;
            sum = sum + absolute(x[i]);
        }
        for (int i = 0; i < 2; ++i) {
            uppers[i] = upper_bits(levels + 4 * i) | upper_bits(levels + 4 * i + 16) << 2 |
                        upper_bits(levels + 4 * i + 8) << 4 | upper_bits(levels + 4 * i + 24) << 6;
        }
        scatter_halves<block_bytes>(half_of_float(scale), bytes);
        store_words<2, block_bytes>(uppers, bytes + 2);
        store_nibbles<block_bytes>(levels, bytes + 10);
        return not_(less(sum, broadcast<Lane>(1e10f)));
    }

private:
    template <class Int>
    static KERNEL_INLINE Int upper_bits(const Int *levels) {
        return shift_right(pack_bytes(levels[0], levels[1], levels[2], levels[3]), 4) & 0x03030303;
    }
};

}  // namespace
