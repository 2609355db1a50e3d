// Q8_1: Q8_0 with the sum of its elements, an activation's partner of Q4_1 and Q5_1.
#pragma once
#include "../codec.hpp"
#include "../extremes.hpp"

namespace {

// 32 elements rounded to bytes, the largest of them to 127.
template <class Lane>
class RoundedBytes;

// A NaN passes through the maximum and is forgotten at the next element, as in ggml; then levels
// can exceed a byte; their lowest bits count.
template <>
class RoundedBytes<float> {
public:
    explicit RoundedBytes(const float *x)
        : d_(largest_size<32>(x) / 127.0f), inverse_(inverse_or_zero(d_)) {}

    float scale() const { return d_; }
    static bool needs_fallback() { return false; }

    // Four levels as a word; adds them to `sum`, which wraps around.
    int32_t pack(const float *x, uint32_t &sum) const {
        int32_t levels[4];
        for (int i = 0; i < 4; ++i) {
            levels[i] = low_byte(round_half_away(x[i] * inverse_));
            sum += static_cast<uint32_t>(levels[i]);
        }
        return pack_bytes(levels[0], levels[1], levels[2], levels[3]);
    }

private:
    float d_, inverse_;
};

template <>
class RoundedBytes<Floats> {
public:
    explicit KERNEL_INLINE RoundedBytes(const Floats *x)
        : d_(float_of(largest_bits<32>(x)) / 127.0f), inverse_(inverse_or_zero(d_)) {}

    KERNEL_INLINE Floats scale() const { return d_; }

    // If the scale or its inverse is not finite.
    KERNEL_INLINE Mask needs_fallback() const {
        return not_(
            and_(less(d_, broadcast(largest_float)), less(inverse_, broadcast(largest_float))));
    }

    KERNEL_INLINE Ints pack(const Floats *x, Words &sum) const {
        Ints levels[4];
        UNROLL
        for (int i = 0; i < 4; ++i) levels[i] = round_half_away(x[i] * inverse_);
        sum += ((Words)levels[0] + (Words)levels[1]) + ((Words)levels[2] + (Words)levels[3]);
        return deinterleave((LaneU8)four_bytes(levels));
    }

private:
    Floats d_, inverse_;
};

struct Q8_1 : EncodesAnyLane<Q8_1> {
    static constexpr uint32_t id = 9, block_size = 32, block_bytes = 36;
    static constexpr const char *name = "Q8_1";

    struct BLOCK Block {
        uint16_t d, sum;
        int8_t levels[32];
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");

    template <class Lane, class Importance>
    static MaskOf<Lane> encode(const Lane *x, Importance, uint8_t *bytes) {
        using Int = IntOf<Lane>;
        const RoundedBytes<Lane> rounded(x);
        const Lane d = rounded.scale();
        Int words[8];
        WordOf<Lane> sum{};
        UNROLL
        for (int i = 0; i < 8; ++i) words[i] = rounded.pack(x + 4 * i, sum);
        scatter_halves<block_bytes>(half_of_float(d), bytes);
        scatter_halves<block_bytes>(half_of_float(to_floats((Int)sum) * d), bytes + 2);
        store_words<8, block_bytes>(words, bytes + 4);
        return rounded.needs_fallback();
    }

    template <class Store>
    static void decode_lanes(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const float d = scalar_of_half(block.d);
        put_levels<Store>(x, load_i8x16(block.levels), d);
        put_levels<Store>(x + 16, load_i8x16(block.levels + 16), d);
    }

    // ggml's validation does not know the type; its rule for Q4_1 fits.
    static bool is_valid(const uint8_t *bytes) {
        const Block &block = view<Block>(bytes);
        return is_finite_half(block.d) && is_finite_half(block.sum);
    }
};

}  // namespace
