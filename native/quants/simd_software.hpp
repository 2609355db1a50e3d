// The primitives for four lanes that SSE 4.2 has no instruction for, and vector extensions neither.
#pragma once

namespace {

// Rounded in the machine's fastest way: not for results that must equal ggml's.
KERNEL_INLINE Floats fmsub(Floats a, Floats b, Floats c) { return a * b - c; }

KERNEL_INLINE Floats float_of_half(Ints half) {
    const Ints magnitude = half << 17;
    const Floats normal = float_of(shift_right(magnitude, 4) + (0xE0 << 23)) * 0x1.0p-112f;
    const Floats denormal = float_of(shift_right(magnitude, 17) | (126 << 23)) - 0.5f;
    const Mask small = greater(broadcast(0x0400), half & 0x7FFF);
    return float_of((half << 16 & INT32_MIN) | bits_of(select(small, denormal, normal)));
}

KERNEL_INLINE Ints half_of_float(Floats value) {
    const Ints exponent = maximum(bits_of(value) & 0x7F800000, broadcast(0x38800000));
    const Floats scaled = (absolute(value) * 0x1.0p+112f) * 0x1.0p-110f;
    const Ints bits = bits_of(float_of((Ints)((Words)exponent + 0x07800000)) + scaled);
    const Ints rounded = (shift_right(bits, 13) & 0x7C00) + (bits & 0x0FFF);
    return shift_right(sign_of(value), 16) | select(is_nan(value), broadcast(0x7E00), rounded);
}

KERNEL_INLINE float scalar_of_half(uint16_t half) { return float_of_half(half); }

KERNEL_INLINE Floats permute_in_fours(Floats table, Ints index) { return permute(table, index); }

#if GGUFKIT_LANES
// Through memory: a forced lane count is for tests, not for speed.
KERNEL_INLINE void transpose(Floats (&rows)[lanes]) {
    float square[lanes][lanes], turned[lanes][lanes];
    memcpy(square, rows, sizeof square);
    for (int i = 0; i < lanes * lanes; ++i)
        turned[i % lanes][i / lanes] = square[i / lanes][i % lanes];
    memcpy(rows, turned, sizeof turned);
}
#else
KERNEL_INLINE void transpose(Floats (&rows)[lanes]) {
    const Floats low02 = __builtin_shufflevector(rows[0], rows[2], 0, 4, 1, 5);
    const Floats low13 = __builtin_shufflevector(rows[1], rows[3], 0, 4, 1, 5);
    const Floats high02 = __builtin_shufflevector(rows[0], rows[2], 2, 6, 3, 7);
    const Floats high13 = __builtin_shufflevector(rows[1], rows[3], 2, 6, 3, 7);
    rows[0] = __builtin_shufflevector(low02, low13, 0, 4, 1, 5);
    rows[1] = __builtin_shufflevector(low02, low13, 2, 6, 3, 7);
    rows[2] = __builtin_shufflevector(high02, high13, 0, 4, 1, 5);
    rows[3] = __builtin_shufflevector(high02, high13, 2, 6, 3, 7);
}
#endif

}  // namespace
