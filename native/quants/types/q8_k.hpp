// Q8_K: 256 signed bytes, their scale as a float, and the sums of sixteen levels each.
#pragma once
#include "../codec.hpp"
#include "../extremes.hpp"

namespace {

struct Q8_K : EncodesAnyLane<Q8_K> {
    static constexpr uint32_t id = 15, block_size = 256, block_bytes = 292;
    static constexpr const char *name = "Q8_K";
    static constexpr bool fetches_next = true;

    struct BLOCK Block {
        float d;
        int8_t levels[256];
        int16_t sums[16];
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");

    // Where all is zero, ggml leaves the sums as they were in memory; here they are zero.
    template <class Lane, class Importance>
    static MaskOf<Lane> encode(const Lane *x, Importance ahead, uint8_t *bytes) {
        using Int = IntOf<Lane>;
        const Lane extreme = extreme_of<block_size>(x), zero{};
        Levels<Lane> levels(extreme);
        Int words[73];
        words[0] = bits_of(select(equal(extreme, zero), zero, 1.0f / (-127.0f / extreme)));
        for (int i = 0; i < 8; ++i) {
            ahead.template fetch_next<32>(32 * i);
            const Int low = encode_group(x + 32 * i, levels, words + 1 + 8 * i);
            const Int high = encode_group(x + 32 * i + 16, levels, words + 5 + 8 * i);
            words[65 + i] = (low & 0xFFFF) | (high & 0xFFFF) << 16;
        }
        store_words<73, block_bytes>(words, bytes);
        return levels.strange();
    }

    // Levels plus 128, as a byte.
    template <class Lane>
    class Levels;

    // Packs sixteen levels into four words and returns their sum.
    template <class Lane>
    static KERNEL_INLINE IntOf<Lane> encode_group(const Lane *x, Levels<Lane> &levels,
                                                  IntOf<Lane> *words) {
        using Int = IntOf<Lane>;
        Int sum = all_ints<Int>(-16 * 128);
        UNROLL
        for (int i = 0; i < 4; ++i) {
            const Lane *four = x + 4 * i;
            const Int a = levels.of(four[0]), b = levels.of(four[1]);
            const Int c = levels.of(four[2]), d = levels.of(four[3]);
            sum = sum + (a + b + c + d);
            words[i] = (a | b << 8 | c << 16 | d << 24) ^ static_cast<int32_t>(0x80808080);
        }
        return sum;
    }

    static void decode_block(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        for (int i = 0; i < 256; ++i) x[i] = block.d * block.levels[i];
    }

    template <class Store>
    static void decode_lanes(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        UNROLL
        for (int i = 0; i < 256; i += 16) {
            put_levels<Store>(x + i, load_bytes(block.levels + i), block.d);
        }
    }

    static bool is_valid(const uint8_t *bytes) { return is_finite(view<Block>(bytes).d); }
};

template <>
class Q8_K::Levels<float> {
public:
    explicit Levels(float extreme) : empty_(extreme == 0.0f), inverse_(-127.0f / extreme) {}

    int32_t of(float x) const {
        const int32_t level = minimum(nearest_int(inverse_ * x), 127);
        return (empty_ ? 0 : low_byte(level)) + 128;
    }

    static bool strange() { return false; }

private:
    bool empty_;
    float inverse_;
};

// What rounds beyond a byte, or is no number, shows in the upper bits.
template <>
class Q8_K::Levels<Floats> {
public:
    explicit KERNEL_INLINE Levels(Floats extreme)
        : inverse_(select(equal(extreme, Floats{}), Floats{}, -127.0f / extreme)) {}

    KERNEL_INLINE Ints of(Floats x) {
        const Ints level = bits_of(inverse_ * x + 12582912.0f) - (0x4B400000 - 128);
        all_bits_ |= level;
        return level;
    }

    KERNEL_INLINE Mask strange() const { return above(shift_right(all_bits_, 8), Ints{}); }

private:
    Floats inverse_;
    Ints all_bits_{};
};

}  // namespace
