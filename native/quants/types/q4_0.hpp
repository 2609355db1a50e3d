// Q4_0: 32 levels of 4 bits around 8, and their scale.
#pragma once
#include "legacy.hpp"

namespace {

struct Q4_0 : EncodesAround<Q4_0> {
    static constexpr uint32_t id = 2, block_size = 32, block_bytes = 18;
    static constexpr const char *name = "Q4_0";
    static constexpr int top = 15;  // the highest level
    static constexpr bool weighs_by_row = true;
    static constexpr Weights weights = weights_taken;

    struct BLOCK Block {
        uint16_t d;
        uint8_t pairs[16];
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");
};

}  // namespace
