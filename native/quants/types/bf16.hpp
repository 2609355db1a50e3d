// BF16: the upper half of a float, rounded to nearest even; NaN stays quiet and keeps its
// payload's upper bits.
#pragma once
#include "../codec.hpp"

namespace {

struct BF16 {
    static constexpr uint32_t id = 30, block_size = 1, block_bytes = 2;
    static constexpr const char *name = "BF16";

    static void encode_block(const float *x, uint8_t *block) {
        const uint32_t bits = bits_of(*x);
        const uint32_t quiet = (bits >> 16) | 64;
        const uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
        write(block, static_cast<uint16_t>(*x != *x ? quiet : rounded));
    }

    static void encode_lanes(const Floats *x, uint8_t *blocks) {
        const Ints bits = bits_of(x[0]);
        const Ints upper = shift_right(bits, 16);
        const Ints rounded = shift_right(bits + 0x7FFF + (upper & 1), 16);
        store_halves(blocks, select(is_nan(x[0]), upper | 64, rounded));
    }

    static void decode_block(const uint8_t *block, float *x) {
        *x = float_of(static_cast<uint32_t>(read<uint16_t>(block)) << 16);
    }

    template <class Store>
    static void decode_lanes(const uint8_t *blocks, float *x) {
        UNROLL
        for (int i = 0; i < 16; i += lanes) {
            Store::put(x + i, float_of(load_halves(blocks + 2 * i) << 16));
        }
    }

    static bool is_valid(const uint8_t *block) {
        return (read<uint16_t>(block) & 0x7F80) != 0x7F80;
    }
};

}  // namespace
