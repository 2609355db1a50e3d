// The primitives that all of x86-64 shares. `repeat` and `shuffle_bytes` are those of the
// instruction set. Instructions of AVX2 are named at the right.
#pragma once

namespace {

KERNEL_INLINE U8x16 lookup(U8x16 table, U8x16 index) {  // vpshufb
    return (U8x16)_mm_shuffle_epi8((__m128i)table, (__m128i)index);
}

KERNEL_INLINE LaneU8 lookup_16(U8x16 table, LaneU8 index) {  // vpshufb
    return shuffle_bytes(repeat(table), index);
}

// A shuffle gives zero if the highest bit of an index is set, else it uses the low four bits.
KERNEL_INLINE LaneU8 lookup_32(const uint8_t *table, LaneU8 index) {  // twice vpshufb
    const LaneU8 low = lookup_16(load_u8x16(table), index + 0x70);
    return low | lookup_16(load_u8x16(table + 16), index - 16);
}

// The n-th of each lane's four numbers, sign-extended.
KERNEL_INLINE Ints nth_of_lane(LaneU8 bytes, int n) {  // vpshufb, vpsrad
    const auto first = static_cast<uint8_t>(4 * n), second = static_cast<uint8_t>(first + 1);
    const auto third = static_cast<uint8_t>(first + 2), last = static_cast<uint8_t>(first + 3);
    const U8x16 top = {255, 255, 255, first, 255, 255, 255, second,
                       255, 255, 255, third, 255, 255, 255, last};
    return (Ints)shuffle_bytes(bytes, repeat(top)) >> 24;
}

// Four numbers per lane, in order.
KERNEL_INLINE Ints deinterleave(LaneU8 bytes) {  // vpshufb
    const U8x16 order = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
    return (Ints)shuffle_bytes(bytes, repeat(order));
}

#if defined(__F16C__)
KERNEL_INLINE float scalar_of_half(uint16_t half) { return _cvtsh_ss(half); }  // vcvtph2ps

// Converts NaN to what ggml has: the hardware keeps payloads.
KERNEL_INLINE Floats with_ggml_nan(Floats value) {
    return select(is_nan(value), float_of(sign_of(value) | 0x7FC00000), value);
}
#endif

KERNEL_INLINE void finish_streaming() { _mm_sfence(); }  // sfence

}  // namespace
