// Q4_1: 32 levels of 4 bits above a minimum, with their scale.
#pragma once
#include "legacy.hpp"

namespace {

struct Q4_1 : EncodesAbove<Q4_1> {
    static constexpr uint32_t id = 3, block_size = 32, block_bytes = 20;
    static constexpr const char *name = "Q4_1";
    static constexpr int top = 15;  // the highest level
    static constexpr bool weighs_by_row = true;
    static constexpr Weights weights = weights_taken;

    struct BLOCK Block {
        uint16_t d, minimum;
        uint8_t pairs[16];
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");
};

}  // namespace
