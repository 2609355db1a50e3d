// Q8_K: 256 signed bytes, their scale as a float, and the sums of sixteen levels each.
#pragma once
#include "../codec.hpp"
#include "../extremes.hpp"

namespace {

struct Q8_K : EncodesAnyLane<Q8_K> {
    static constexpr uint32_t id = 15, block_size = 256, block_bytes = 292;
    static constexpr const char *name = "Q8_K";

    struct BLOCK Block {
        float d;
        int8_t levels[256];
        int16_t sums[16];
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");

    // If all elements are zero, ggml leaves the sums uninitialized; here they are zero.
    template <class Lane, class Importance>
    static MaskOf<Lane> encode(const Lane *x, Importance, uint8_t *bytes) {
        using Int = IntOf<Lane>;
        const Lane extreme = extreme_of<block_size>(x), zero{};
        Levels<Lane> levels(extreme);
        Int words[73];
        words[0] = bits_of(select(equal(extreme, zero), zero, 1.0f / (-127.0f / extreme)));
        for (int i = 0; i < 8; ++i) {
            const Int low = encode_group(x + 32 * i, levels, words + 1 + 8 * i);
            const Int high = encode_group(x + 32 * i + 16, levels, words + 5 + 8 * i);
            words[65 + i] = (low & 0xFFFF) | (high & 0xFFFF) << 16;
        }
        store_words<73, block_bytes>(words, bytes);
        return levels.needs_fallback();
    }

    // Levels as the lowest byte above a base; sums of words wrap around.
    template <class Lane>
    class Levels;

    // Packs sixteen levels into four words and returns their sum.
    template <class Lane>
    static KERNEL_INLINE IntOf<Lane> encode_group(const Lane *x, Levels<Lane> &levels,
                                                  IntOf<Lane> *words) {
        using Word = WordOf<Lane>;
        constexpr uint32_t base = Levels<Lane>::base;
        Word sum = Word{} - 16 * base;
        UNROLL
        for (int i = 0; i < 4; ++i) {
            const Lane *four = x + 4 * i;
            const Word a = levels.of(four[0]), b = levels.of(four[1]);
            const Word c = levels.of(four[2]), d = levels.of(four[3]);
            sum = sum + (a + b + c + d);
            const Word bytes = a ^ b << 8 ^ c << 16 ^ d << 24;
            words[i] = (IntOf<Lane>)(bytes ^ (base ^ base << 8 ^ base << 16 ^ base << 24));
        }
        return (IntOf<Lane>)sum;
    }

    template <class Store>
    static void decode_lanes(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        UNROLL
        for (int i = 0; i < 256; i += 16) {
            put_levels<Store>(x + i, load_i8x16(block.levels + i), block.d);
        }
    }

    static bool is_valid(const uint8_t *bytes) { return is_finite(view<Block>(bytes).d); }
};

template <>
class Q8_K::Levels<float> {
public:
    explicit Levels(float extreme) : empty_(extreme == 0.0f), inverse_(-127.0f / extreme) {}

    static constexpr uint32_t base = 128;

    uint32_t of(float x) const {
        const int32_t level = minimum(nearest_int(inverse_ * x), 127);
        return static_cast<uint32_t>((empty_ ? 0 : low_byte(level)) + 128);
    }

    static bool needs_fallback() { return false; }

private:
    bool empty_;
    float inverse_;
};

// Values beyond a byte, and NaN, show in the upper bits: a sum above 2^23 is itself rounded to an
// integer.
template <>
class Q8_K::Levels<Floats> {
public:
    explicit KERNEL_INLINE Levels(Floats extreme)
        : inverse_(select(equal(extreme, Floats{}), Floats{}, -127.0f / extreme)) {}

    static constexpr uint32_t base = 0x4B400080;  // the bits of 2^23 + 2^22 + 128

    KERNEL_INLINE Words of(Floats x) {
        const Words level = (Words)bits_of(inverse_ * x + 12583040.0f);
        upper_bits_ |= level ^ base;
        return level;
    }

    KERNEL_INLINE Mask needs_fallback() const {
        return greater(shift_right((Ints)upper_bits_, 8), Ints{});
    }

private:
    Floats inverse_;
    Words upper_bits_{};
};

}  // namespace
