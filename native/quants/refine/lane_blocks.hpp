// Blocks of all lanes in memory: reading fields, and replacing the blocks of some lanes.
#pragma once
#include "../codec.hpp"

namespace {

// Whether the scale of a block is a half.
template <class Block, class = void>
constexpr bool has_half = false;
template <class Block>
constexpr bool has_half<Block, decltype(void(&Block::d))> = true;

template <class Lane>
constexpr int width_of = is_scalar<Lane> ? 1 : lanes;

// Calls read(block, values) for the block of each lane; `Count` values of it become Ints.
template <int Stride, int Count, class Lane, class Read>
KERNEL_INLINE void read_fields(const uint8_t *bytes, Read read, IntOf<Lane> *fields) {
    int32_t values[Count * width_of<Lane>];
    for (int lane = 0; lane < width_of<Lane>; ++lane) {
        int32_t own[Count];
        read(bytes + lane * Stride, own);
        for (int i = 0; i < Count; ++i) values[i * width_of<Lane> + lane] = own[i];
    }
    memcpy(fields, values, sizeof values);
}

// Multiplies a half of the block of each lane.
template <int Stride, class Lane>
KERNEL_INLINE void multiply_half(Lane factor, int offset, uint8_t *bytes) {
    IntOf<Lane> half[1];
    const auto read_half = [=](const uint8_t *block, int32_t *own) {
        own[0] = read<uint16_t>(block + offset);
    };
    read_fields<Stride, 1, Lane>(bytes, read_half, half);
    scatter_halves<Stride>(half_of_float(factor * float_of_half(half[0])), bytes + offset);
}

// Multiplies all numbers of the block of each lane: its scale and its minimum.
template <class Type, class Lane>
KERNEL_INLINE void multiply_blocks(Lane factor, uint8_t *bytes) {
    using Block = typename Type::Block;
    multiply_half<Type::block_bytes>(factor, __builtin_offsetof(Block, d), bytes);
    if constexpr (has_minimum<Block>) {
        multiply_half<Type::block_bytes>(factor, __builtin_offsetof(Block, minimum), bytes);
    }
}

// Copies the blocks of the lanes in `mask`.
template <int Stride>
KERNEL_INLINE void replace_blocks(Mask mask, const uint8_t *candidate, uint8_t *bytes) {
    for (uint32_t some = movemask(mask); some != 0; some &= some - 1) {
        const int lane = __builtin_ctz(some);
        memcpy(bytes + lane * Stride, candidate + lane * Stride, Stride);
    }
}
template <int Stride>
KERNEL_INLINE void replace_blocks(bool mask, const uint8_t *candidate, uint8_t *bytes) {
    if (mask) memcpy(bytes, candidate, Stride);
}

}  // namespace
