// Lets one source be both the scalar port of a block and the encoder of a block per lane.
//
// A Lane is a float, or Floats. Where a scalar port branches, both compute and select. Only
// rounding differs: a float rounds as ggml does for any argument, Floats do so below 2^22;
// encoders tell which lanes left that range, and the scalar port encodes their blocks again.
#pragma once
#include "importance.hpp"
#include "scalar_port.hpp"

namespace {

template <class Lane>
struct Lanes;
template <>
struct Lanes<float> {
    using Int = int32_t;
    using Word = uint32_t;
    using Mask = bool;
    static constexpr int interleaved = 1;
};
template <>
struct Lanes<Floats> {
    using Int = Ints;
    using Word = Words;
    using Mask = ::Mask;
    static constexpr int interleaved = 2;  // groups interleaved to hide the latency of sums
};

template <class Lane>
using IntOf = typename Lanes<Lane>::Int;
template <class Lane>
using WordOf = typename Lanes<Lane>::Word;
template <class Lane>
using MaskOf = typename Lanes<Lane>::Mask;

template <class Lane>
constexpr bool is_scalar = Lanes<Lane>::interleaved == 1;

template <class Lane>
KERNEL_INLINE Lane broadcast(float value) {
    return value - Lane{};
}
template <class Int>
KERNEL_INLINE Int broadcast_int(int32_t value) {
    return value - Int{};
}

KERNEL_INLINE bool less(float a, float b) { return a < b; }
KERNEL_INLINE bool equal(float a, float b) { return a == b; }
KERNEL_INLINE bool equal(int32_t a, int32_t b) { return a == b; }
KERNEL_INLINE bool any(bool mask) { return mask; }
KERNEL_INLINE bool any(Mask mask) { return movemask(mask) != 0; }
KERNEL_INLINE bool all(bool mask) { return mask; }
KERNEL_INLINE bool all(Mask mask) { return movemask(mask) == all_lanes; }
KERNEL_INLINE bool and_(bool a, bool b) { return a && b; }
KERNEL_INLINE bool or_(bool a, bool b) { return a || b; }
KERNEL_INLINE Mask and_(Mask a, Mask b) { return a & b; }
KERNEL_INLINE Mask or_(Mask a, Mask b) { return a | b; }
KERNEL_INLINE bool not_(bool mask) { return !mask; }
KERNEL_INLINE Mask not_(Mask mask) { return ~mask; }
KERNEL_INLINE Mask equal(Ints a, Ints b) { return not_(or_(greater(a, b), greater(b, a))); }
KERNEL_INLINE float select(bool mask, float a, float b) { return mask ? a : b; }
KERNEL_INLINE int32_t select(bool mask, int32_t a, int32_t b) { return mask ? a : b; }
KERNEL_INLINE float maximum(float a, float b) { return a > b ? a : b; }
KERNEL_INLINE float minimum(float a, float b) { return a < b ? a : b; }
KERNEL_INLINE int32_t maximum(int32_t a, int32_t b) { return a > b ? a : b; }
KERNEL_INLINE int32_t minimum(int32_t a, int32_t b) { return a < b ? a : b; }
KERNEL_INLINE float to_floats(int32_t value) { return static_cast<float>(value); }
KERNEL_INLINE float square_root(float value) { return __builtin_sqrtf(value); }

KERNEL_INLINE int32_t shift_right(int32_t value, int count) {
    return static_cast<int32_t>(static_cast<uint32_t>(value) >> count);
}

// nearest_int of ggml: beyond 2^22 it returns the bits as they are, and so must this.
template <class Lane>
KERNEL_INLINE IntOf<Lane> nearest_int(Lane value) {
    return (IntOf<Lane>)((bits_of(value + 12582912.0f) & 0x007FFFFF) - 0x00400000);
}
KERNEL_INLINE float nearest(float value) { return to_floats(nearest_int(value)); }

constexpr float least_group = 1e-15f;  // GROUP_MAX_EPS: a group below it counts as zeros

constexpr float nearest_bound = 4e6f;  // safely below 2^22

// Whether `value` is beyond the range in which Floats round as ggml does, or is a NaN.
template <class Lane>
KERNEL_INLINE MaskOf<Lane> beyond_nearest(Lane value) {
    return not_(less(absolute(value), broadcast<Lane>(nearest_bound)));
}

template <class Lane>
KERNEL_INLINE MaskOf<Lane> no_lane() {
    return less(Lane{}, Lane{});
}

KERNEL_INLINE int32_t pack_bytes(int32_t a, int32_t b, int32_t c, int32_t d) {
    return (a & 255) | (b & 255) << 8 | (c & 255) << 16 | static_cast<int32_t>(d * (1u << 24));
}

template <int Count, int Stride>
KERNEL_INLINE void store_words(const int32_t *words, uint8_t *dst) {
    memcpy(dst, words, 4 * Count);
}

template <int Stride>
KERNEL_INLINE void scatter_halves(int32_t half, uint8_t *dst) {
    write(dst, static_cast<uint16_t>(half));
}

// Passed to an encoder instead of importance if there is none.
struct Unweighted {
    BlockImportance of(int) const { return {nullptr, 0.0f}; }
};
template <class Importance>
constexpr bool is_weighted = true;
template <>
constexpr bool is_weighted<Unweighted> = false;

// Members that follow from a type's `encode`, which is written for any Lane.
template <class Type>
struct EncodesAnyLane {
    static void encode_block(const float *x, uint8_t *block) {
        Type::encode(x, Unweighted{}, block);
    }
    static void encode_lanes(const Floats *x, uint8_t *blocks) {
        encode_tile(x, Unweighted{}, blocks);
    }
    static void encode_weighted_block(const float *x, const BlockImportance &importance,
                                      uint8_t *block) {
        Type::encode(x, importance, block);
    }
    static void encode_weighted_lanes(const Floats *x, const LaneImportance &importance,
                                      uint8_t *blocks) {
        encode_tile(x, importance, blocks);
    }

private:
    template <class Importance>
    static void encode_tile(const Floats *x, const Importance &importance, uint8_t *blocks) {
        encode_fallback(Type::encode(x, importance, blocks), x, importance, blocks);
    }

protected:
    // Use the scalar port if lanes cannot round as ggml does.
    template <class Importance>
    static void encode_fallback(Mask needs_fallback, const Floats *x, const Importance &importance,
                                uint8_t *blocks) {
        for (uint32_t again = movemask(needs_fallback); again != 0; again &= again - 1) {
            const int lane = __builtin_ctz(again);
            float own[Type::block_size];
            for (uint32_t i = 0; i < Type::block_size; ++i) own[i] = x[i][lane];
            const BlockImportance of_block = importance.of(lane);
            portable_codec(Type::id).encode_block(own, of_block.weights, of_block.row_mean_square,
                                                  blocks + lane * Type::block_bytes);
        }
    }
};

// Several independent Lanes that go through the same steps. Arithmetic takes references: in large
// functions GCC keeps copies in memory, at half the speed.
template <class Lane, int Count>
struct Several {
    Lane of[Count];
};
template <class Lane, int Count>
struct SeveralMasks {
    MaskOf<Lane> of[Count];
};

#define SEVERAL(result, name, call)                                         \
    template <class Lane, int Count>                                        \
    KERNEL_INLINE result<Lane, Count> name(const Several<Lane, Count> &a,   \
                                           const Several<Lane, Count> &b) { \
        result<Lane, Count> values;                                           \
        UNROLL                                                              \
        for (int i = 0; i < Count; ++i) values.of[i] = call;                  \
        return values;                                                        \
    }
SEVERAL(Several, operator+, a.of[i] + b.of[i])
SEVERAL(Several, operator-, a.of[i] - b.of[i])
SEVERAL(Several, operator*, a.of[i] * b.of[i])
SEVERAL(Several, operator/, a.of[i] / b.of[i])
SEVERAL(Several, maximum, maximum(a.of[i], b.of[i]))
SEVERAL(Several, minimum, minimum(a.of[i], b.of[i]))
SEVERAL(SeveralMasks, less, less(a.of[i], b.of[i]))
SEVERAL(SeveralMasks, equal, equal(a.of[i], b.of[i]))
#undef SEVERAL

#define SEVERAL(result, name, argument, call)                                \
    template <class Lane, int Count>                                         \
    KERNEL_INLINE result<Lane, Count> name(const argument<Lane, Count> &a) { \
        result<Lane, Count> values;                                            \
        UNROLL                                                               \
        for (int i = 0; i < Count; ++i) values.of[i] = call;                   \
        return values;                                                         \
    }
SEVERAL(Several, nearest, Several, nearest(a.of[i]))
SEVERAL(Several, absolute, Several, absolute(a.of[i]))
SEVERAL(SeveralMasks, beyond_nearest, Several, beyond_nearest(a.of[i]))
#undef SEVERAL

template <class Lane, int Count>
KERNEL_INLINE Several<Lane, Count> select(SeveralMasks<Lane, Count> mask, Several<Lane, Count> a,
                                          Several<Lane, Count> b) {
    UNROLL
    for (int i = 0; i < Count; ++i) a.of[i] = select(mask.of[i], a.of[i], b.of[i]);
    return a;
}
template <class Lane, int Count>
KERNEL_INLINE SeveralMasks<Lane, Count> or_(SeveralMasks<Lane, Count> a,
                                            SeveralMasks<Lane, Count> b) {
    UNROLL
    for (int i = 0; i < Count; ++i) a.of[i] = or_(a.of[i], b.of[i]);
    return a;
}
template <class Lane, int Count>
KERNEL_INLINE SeveralMasks<Lane, Count> and_(SeveralMasks<Lane, Count> a,
                                             SeveralMasks<Lane, Count> b) {
    UNROLL
    for (int i = 0; i < Count; ++i) a.of[i] = and_(a.of[i], b.of[i]);
    return a;
}
template <class Lane, int Count>
KERNEL_INLINE bool any(const SeveralMasks<Lane, Count> &mask) {
    bool outcome = false;
    UNROLL
    for (int i = 0; i < Count; ++i) outcome |= any(mask.of[i]);
    return outcome;
}
template <class Lane, int Count>
KERNEL_INLINE bool all(const SeveralMasks<Lane, Count> &mask) {
    bool outcome = true;
    UNROLL
    for (int i = 0; i < Count; ++i) outcome &= all(mask.of[i]);
    return outcome;
}

}  // namespace
