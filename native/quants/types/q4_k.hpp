// Q4_K: 8 groups of 32 levels of 4 bits, each group with a scale and a minimum of 6 bits, and the
// scales of those.
#pragma once
#include "superblock.hpp"

namespace {

struct Q4_K : Superblock<Q4_K> {
    static constexpr uint32_t id = 12, block_size = 256, block_bytes = 144;
    static constexpr const char *name = "Q4_K";
    static constexpr int top = 15;  // the highest level
    static constexpr GroupRule<15, 21> plain_rule{-1.0f, 0.1f};
    static constexpr GroupRule<15, 37> weighted_rule{-0.9f, 0.05f};

    struct BLOCK Block {
        uint16_t d, minimum;
        uint8_t scales[12];
        uint8_t pairs[128];  // elements 32 apart share a byte
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");
};

}  // namespace
