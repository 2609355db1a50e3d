// Q5_0: 32 levels of 5 bits around 16, the fifth bits separate, and their scale.
#pragma once
#include "legacy.hpp"

namespace {

struct Q5_0 : EncodesAround<Q5_0> {
    static constexpr uint32_t id = 6, block_size = 32, block_bytes = 22;
    static constexpr const char *name = "Q5_0";
    static constexpr int top = 31;  // the highest level
    static constexpr bool weighs_by_row = true;
    static constexpr Weights weights = weights_taken;

    struct BLOCK Block {
        uint16_t d;
        uint8_t fifths[4];
        uint8_t pairs[16];
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");
};

}  // namespace
