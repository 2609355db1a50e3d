// Q5_1: 32 levels of 5 bits above a minimum, the fifth bits separate, with their scale.
#pragma once
#include "legacy.hpp"

namespace {

struct Q5_1 : EncodesAbove<Q5_1> {
    static constexpr uint32_t id = 7, block_size = 32, block_bytes = 24;
    static constexpr const char *name = "Q5_1";
    static constexpr int top = 31;  // the highest level
    static constexpr bool weighs_by_row = true;
    static constexpr Weights weights = weights_taken;

    struct BLOCK Block {
        uint16_t d, minimum;
        uint8_t fifths[4];
        uint8_t pairs[16];
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");
};

}  // namespace
