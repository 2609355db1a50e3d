// F16: IEEE half precision.
#pragma once
#include "../codec.hpp"

namespace {

struct F16 {
    static constexpr uint32_t id = 1, block_size = 1, block_bytes = 2;
    static constexpr const char *name = "F16";

    static void encode_block(const float *x, uint8_t *block) { write(block, half_of_float(*x)); }

    static void encode_lanes(const Floats *x, uint8_t *blocks) {
        store_halves(blocks, half_of_float(x[0]));
    }

    static void decode_block(const uint8_t *block, float *x) {
        *x = float_of_half(read<uint16_t>(block));
    }

    template <class Store>
    static void decode_lanes(const uint8_t *blocks, float *x) {
        UNROLL
        for (int i = 0; i < 16; i += lanes) {
            Store::put(x + i, float_of_half(load_halves(blocks + 2 * i)));
        }
    }

    static bool is_valid(const uint8_t *block) { return is_finite_half(read<uint16_t>(block)); }
};

}  // namespace
