// Scalar arithmetic equal to that of ggml's reference build, on any compiler and machine.
#pragma once
#include <stdint.h>
#include <string.h>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "blocks are read as little endian");

#define KERNEL_INLINE inline __attribute__((always_inline))
#define KERNEL_NOINLINE __attribute__((noinline))  // for a loop that needs all registers

namespace {

constexpr float largest_float = 3.40282347e+38f;  // FLT_MAX

template <class T>
KERNEL_INLINE T read(const uint8_t *bytes) {
    T value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

template <class T>
KERNEL_INLINE void write(uint8_t *bytes, T value) {
    memcpy(bytes, &value, sizeof value);
}

// A packed block in place, at any address.
#define BLOCK __attribute__((packed, may_alias))
template <class Block>
KERNEL_INLINE const Block &view(const uint8_t *bytes) {
    return *reinterpret_cast<const Block *>(bytes);
}

KERNEL_INLINE uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

KERNEL_INLINE float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

KERNEL_INLINE float absolute(float value) { return __builtin_fabsf(value); }

// In C a conversion out of range is undefined; x86 builds of ggml give INT32_MIN, which later
// narrowing turns into 0.
KERNEL_INLINE int32_t truncate(float value) {
    const bool fits = value >= -2147483648.0f && value < 2147483648.0f;
    return fits ? static_cast<int32_t>(value) : INT32_MIN;
}

// (int)roundf(value): adding the float below one half, unlike one half itself, never rounds a value
// below a tie up.
KERNEL_INLINE int32_t round_half_away(float value) {
    return truncate(value + __builtin_copysignf(0.49999997f, value));
}

// ggml_compute_fp16_to_fp32: exact, quiet NaN for NaN.
KERNEL_INLINE float float_of_half(uint16_t half) {
    const uint32_t word = static_cast<uint32_t>(half) << 16;
    const uint32_t sign = word & 0x80000000u;
    const uint32_t magnitude = word + word;
    const float normal = float_of((magnitude >> 4) + (0xE0u << 23)) * 0x1.0p-112f;
    const float denormal = float_of((magnitude >> 17) | (126u << 23)) - 0.5f;
    return float_of(sign | bits_of(magnitude < (1u << 27) ? denormal : normal));
}

// ggml_compute_fp32_to_fp16: nearest even; every NaN becomes 0x7e00 and keeps its sign.
KERNEL_INLINE uint16_t half_of_float(float value) {
    const uint32_t word = bits_of(value);
    const uint32_t magnitude = word + word;
    uint32_t bias = magnitude & 0xFF000000u;
    bias = bias < 0x71000000u ? 0x71000000u : bias;
    const float scaled = (absolute(value) * 0x1.0p+112f) * 0x1.0p-110f;
    const uint32_t bits = bits_of(float_of((bias >> 1) + 0x07800000u) + scaled);
    const uint32_t rounded = ((bits >> 13) & 0x7C00u) + (bits & 0x0FFFu);
    const uint32_t nonsign = magnitude > 0xFF000000u ? 0x7E00u : rounded;
    return static_cast<uint16_t>(((word & 0x80000000u) >> 16) | nonsign);
}

// The inverse of a scale, as ggml's quantizers compute it.
KERNEL_INLINE float inverse_or_zero(float scale) { return scale != 0.0f ? 1.0f / scale : 0.0f; }

// ggml's validate_fp16 and validate_float.
KERNEL_INLINE bool is_finite_half(uint16_t half) { return (half & 0x7C00) != 0x7C00; }
KERNEL_INLINE bool is_finite(float value) { return (bits_of(value) & 0x7F800000u) != 0x7F800000u; }

}  // namespace
