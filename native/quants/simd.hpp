// Vectors of one instruction set, and the few primitives that kernels are written in.
//
// Arithmetic, comparison with scalars' meaning, shifts and bit operations come from the vector
// extensions of GCC and Clang. Everything else is in the simd_*.hpp of the instruction set;
// simd_generic.hpp uses vector extensions alone, for NEON and for any forced lane count. Each
// primitive does, lane by lane, the same as its scalar namesake.
#pragma once
#include "scalar.hpp"

#if defined(GGUFKIT_LANES) || defined(GGUFKIT_EMULATED)
#define UNROLL  // forced and emulated lanes are for tests, not for speed
#elif defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 64")
#endif

namespace {

#if defined(GGUFKIT_LANES)
constexpr int lanes = GGUFKIT_LANES;
#elif defined(__AVX512F__)
constexpr int lanes = 16;
#elif defined(__AVX2__)
constexpr int lanes = 8;
#else
constexpr int lanes = 4;
#endif

constexpr uint32_t all_lanes = static_cast<uint32_t>((uint64_t{1} << lanes) - 1);

typedef float Floats __attribute__((vector_size(4 * lanes)));
typedef int32_t Ints __attribute__((vector_size(4 * lanes)));
typedef uint32_t Words __attribute__((vector_size(4 * lanes)));
typedef int8_t I8x16 __attribute__((vector_size(16)));  // sixteen levels, not yet floats
typedef uint8_t U8x16 __attribute__((vector_size(16)));
typedef uint32_t U32x4 __attribute__((vector_size(16)));
typedef uint64_t U64x2 __attribute__((vector_size(16)));

// Two numbers of 16 bits per lane, and four of 8 bits, in the machine's order.
typedef int16_t LaneI16 __attribute__((vector_size(4 * lanes)));
typedef uint8_t LaneU8 __attribute__((vector_size(4 * lanes)));
typedef int8_t LaneI8 __attribute__((vector_size(4 * lanes)));

KERNEL_INLINE Floats broadcast(float value) { return value - Floats{}; }
KERNEL_INLINE Ints broadcast(int32_t value) { return value - Ints{}; }

KERNEL_INLINE Floats load(const float *from) {
    Floats value;
    memcpy(&value, from, sizeof value);
    return value;
}

KERNEL_INLINE void store(float *to, Floats value) { memcpy(to, &value, sizeof value); }

KERNEL_INLINE U8x16 load_u8x16(const uint8_t *from) { return read<U8x16>(from); }

KERNEL_INLINE I8x16 load_i8x16(const int8_t *from) {
    I8x16 value;
    memcpy(&value, from, sizeof value);
    return value;
}

KERNEL_INLINE Ints bits_of(Floats value) { return (Ints)value; }
KERNEL_INLINE Floats float_of(Ints bits) { return (Floats)bits; }

KERNEL_INLINE Ints shift_right(Ints value, int count) { return (Ints)((Words)value >> count); }

KERNEL_INLINE LaneI16 shift_right(LaneI16 value, int count) {
    typedef uint16_t Halves __attribute__((vector_size(sizeof value)));
    return (LaneI16)((Halves)value >> count);
}

KERNEL_INLINE Floats absolute(Floats value) { return float_of(bits_of(value) & 0x7FFFFFFF); }

KERNEL_INLINE Ints sign_of(Floats value) { return bits_of(value) & INT32_MIN; }

KERNEL_INLINE Floats to_floats(Ints value) { return __builtin_convertvector(value, Floats); }

}  // namespace

#if defined(__AVX512F__) && !defined(GGUFKIT_LANES)
#include "simd_avx512.hpp"
#elif defined(__AVX2__) && !defined(GGUFKIT_LANES)
#include "simd_avx2.hpp"
#elif defined(__SSE4_2__) && !defined(GGUFKIT_LANES)
#include "simd_sse4.hpp"
#else
#include "simd_generic.hpp"
#endif

namespace {

KERNEL_INLINE Ints round_half_away(Floats value) {
    return truncate(value + float_of(sign_of(value) | bits_of(broadcast(0.49999997f))));
}

KERNEL_INLINE Floats inverse_or_zero(Floats scale) {
    return select(equal(scale, broadcast(0.0f)), broadcast(0.0f), 1.0f / scale);
}

// Four lanes of levels as the four bytes of a word, the first lowest; wider bits are dropped.
KERNEL_INLINE Ints pack_bytes(Ints a, Ints b, Ints c, Ints d) {
    return (a & 255) | (b & 255) << 8 | (c & 255) << 16 | d << 24;
}

// Reads `lanes` elements of every lane from `first` on: tile[i] holds those at first + i.
KERNEL_INLINE void load_square(const float *const *of_lane, int64_t first, Floats *tile) {
    Floats rows[lanes];
    UNROLL
    for (int lane = 0; lane < lanes; ++lane) rows[lane] = load(of_lane[lane] + first);
    transpose(rows);
    UNROLL
    for (int lane = 0; lane < lanes; ++lane) tile[lane] = rows[lane];
}

// Fetches `count` elements of every lane from `first` on of the tile that begins at `src`: the
// strided reads of tiles defeat the hardware's prefetcher. It goes in the order of addresses.
KERNEL_INLINE void fetch(const float *src, int first, int count) {
    UNROLL
    for (int i = 0; i < lanes * count; i += 16) __builtin_prefetch(src + lanes * first + i);
}

// Reads one block of `Size` elements per lane: tile[i] holds element i of each lane's block.
template <int Size, bool FetchesNext = true>
KERNEL_INLINE void load_tile(const float *src, Floats *tile) {
    if constexpr (Size == 1) {
        tile[0] = load(src);
    } else {
        for (int i = 0; i < Size; i += lanes) {
            Floats rows[lanes];
            UNROLL
            for (int lane = 0; lane < lanes; ++lane) rows[lane] = load(src + lane * Size + i);
            if (FetchesNext) fetch(src + lanes * Size, i, lanes);
            transpose(rows);
            UNROLL
            for (int lane = 0; lane < lanes; ++lane) tile[i + lane] = rows[lane];
        }
    }
}

// Writes `Count` words per lane to dst + lane * Stride.
template <int Count, int Stride>
KERNEL_INLINE void store_words(const Ints *words, uint8_t *dst) {
    UNROLL
    for (int first = 0; first < Count; first += lanes) {
        const int some = Count - first < lanes ? Count - first : lanes;
        Floats rows[lanes] = {};
        UNROLL
        for (int i = 0; i < some; ++i) rows[i] = float_of(words[first + i]);
        transpose(rows);
        UNROLL
        for (int lane = 0; lane < lanes; ++lane) {
            memcpy(dst + lane * Stride + 4 * first, &rows[lane], 4 * some);
        }
    }
}

// Writes the low 16 bits of each lane to dst + lane * Stride.
template <int Stride>
KERNEL_INLINE void scatter_halves(Ints halves, uint8_t *dst) {
    int32_t values[lanes];
    memcpy(values, &halves, sizeof values);
    UNROLL
    for (int lane = 0; lane < lanes; ++lane) {
        write(dst + lane * Stride, static_cast<uint16_t>(values[lane]));
    }
}

// 0, 1, 2 and so on.
KERNEL_INLINE Ints lane_numbers() {
    Ints numbers;
    UNROLL
    for (int i = 0; i < lanes; ++i) numbers[i] = i;
    return numbers;
}

// Where decoded floats go: through the caches, or past them to memory.
struct Cached {
    static KERNEL_INLINE void put(float *to, Floats value) { store(to, value); }
};
struct Streamed {
    static KERNEL_INLINE void put(float *to, Floats value) { stream(to, value); }
};

// Sixteen elements: levels times a scale.
template <class Store>
KERNEL_INLINE void put_levels(float *to, I8x16 levels, float scale) {
    UNROLL
    for (int part = 0; part < 16 / lanes; ++part) {
        Store::put(to + part * lanes, to_floats(widen(levels, part)) * broadcast(scale));
    }
}

// Sixteen elements: levels times a scale, plus an offset.
template <class Store>
KERNEL_INLINE void put_levels(float *to, I8x16 levels, float scale, float offset) {
    UNROLL
    for (int part = 0; part < 16 / lanes; ++part) {
        const Floats scaled = to_floats(widen(levels, part)) * broadcast(scale);
        Store::put(to + part * lanes, scaled + broadcast(offset));
    }
}

// The low sixteen bits as sixteen bytes, all ones or zero.
KERNEL_INLINE U8x16 spread_bits(uint32_t bits) {
    const U8x16 bit = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const U8x16 byte = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
    return (U8x16)((lookup((U8x16)U32x4{bits}, byte) & bit) == bit);
}

// The low nibbles of eight bytes, then the high ones.
KERNEL_INLINE U8x16 spread_nibbles(const uint8_t *bytes) {
    const uint64_t pairs = read<uint64_t>(bytes);
    return (U8x16)U64x2{pairs, pairs >> 4} & 15;
}

}  // namespace
