// Q5_K: 8 groups of 32 levels of 5 bits, the fifth bits separate, each group with a scale and a
// minimum of 6 bits, and the scales of those.
#pragma once
#include "superblock.hpp"

namespace {

struct Q5_K : Superblock<Q5_K> {
    static constexpr uint32_t id = 13, block_size = 256, block_bytes = 176;
    static constexpr const char *name = "Q5_K";
    static constexpr int top = 31;  // the highest level
    static constexpr GroupRule<31, 16> plain_rule{-0.5f, 0.1f};
    static constexpr GroupRule<31, 37> weighted_rule{-0.9f, 0.05f};

    struct BLOCK Block {
        uint16_t d, minimum;
        uint8_t scales[12];
        uint8_t fifths[32];  // bit g belongs to group g
        uint8_t pairs[128];  // elements 32 apart share a byte
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");
};

}  // namespace
