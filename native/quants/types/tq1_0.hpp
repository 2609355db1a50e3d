// TQ1_0: 256 levels of -1, 0 and 1 as digits of base 3, five in a byte, and their scale.
#pragma once
#include "../codec.hpp"
#include "trits.hpp"

namespace {

struct TQ1_0 : EncodesAnyLane<TQ1_0> {
    static constexpr uint32_t id = 34, block_size = 256, block_bytes = 54;
    static constexpr const char *name = "TQ1_0";

    struct BLOCK Block {
        uint8_t fives[48];  // 32 and then 16 bytes whose digits are as many elements apart
        uint8_t fours[4];   // digits 4 elements apart
        uint16_t d;
    };
    static_assert(sizeof(Block) == block_bytes, "the layout is packed");

    template <class Lane, class Importance>
    static MaskOf<Lane> encode(const Lane *x, Importance, uint8_t *bytes) {
        const Trits<Lane> trits(x);
        IntOf<Lane> words[13];
        for (int i = 0; i < 8; ++i) {
            words[i] = pack_digits<32, 5>(trits, x + 4 * i);
        }
        for (int i = 0; i < 4; ++i) words[8 + i] = pack_digits<16, 5>(trits, x + 160 + 4 * i);
        words[12] = pack_digits<4, 4>(trits, x + 240);
        store_words<13, block_bytes>(words, bytes);
        scatter_halves<block_bytes>(half_of_float(trits.largest()), bytes + 52);
        return trits.needs_fallback();
    }

    // Four bytes of digits; those of one byte are a fixed number of elements apart.
    template <int Apart, int Places>
    static int32_t pack_digits(const Trits<float> &trits, const float *x) {
        int32_t packed[4];
        for (int j = 0; j < 4; ++j) {
            uint8_t number = 0;
            for (int place = 0; place < 5; ++place) {
                const uint8_t digit = place < Places ? trits.of(x[Apart * place + j]) : uint8_t{0};
                number = static_cast<uint8_t>(number * 3 + digit);
            }
            packed[j] = fraction(int32_t{number});
        }
        return pack_bytes(packed[0], packed[1], packed[2], packed[3]);
    }
    template <int Apart, int Places>
    static KERNEL_INLINE Ints pack_digits(const Trits<Floats> &trits, const Floats *x) {
        LaneU8 numbers{};
        UNROLL
        for (int place = 0; place < 5; ++place) {
            numbers = numbers + numbers + numbers;
            if (place < Places) numbers = numbers + trits.four(x + Apart * place);
        }
        const Ints word = deinterleave(numbers);
        return pack_bytes(fraction(word & 255), fraction(shift_right(word, 8) & 255),
                          fraction(shift_right(word, 16) & 255), fraction(shift_right(word, 24)));
    }

    // A number below 243 as a fraction of 256, rounded up: (256 * number + 242) / 243.
    template <class Int>
    static KERNEL_INLINE Int fraction(Int number) {
        return shift_right(number * 1104684 + 1044472, 20);
    }

    // A byte is a fraction of 256: tripled, its next digit is the carry. To know that without a
    // wider product: 3 * 86 and 3 * 171 are the first beyond 255 and 511. A comparison that holds
    // is -1.
    static KERNEL_INLINE I8x16 digits(U8x16 fractions) {
        return -1 - (I8x16)(fractions >= 86) - (I8x16)(fractions >= 171);
    }

    template <class Store, int Apart>
    static KERNEL_INLINE void put_fives(float *x, const uint8_t *fives, float d) {
        U8x16 fractions = load_u8x16(fives);
        UNROLL
        for (int place = 0; place < 5; ++place) {
            put_levels<Store>(x + Apart * place, digits(fractions), d);
            fractions = fractions + fractions + fractions;
        }
    }

    template <class Store>
    static void decode_lanes(const uint8_t *bytes, float *x) {
        const Block &block = view<Block>(bytes);
        const float d = scalar_of_half(block.d);
        put_fives<Store, 32>(x, block.fives, d);
        put_fives<Store, 32>(x + 16, block.fives + 16, d);
        put_fives<Store, 16>(x + 160, block.fives + 32, d);
        const uint32_t fours = read<uint32_t>(block.fours);
        const U8x16 places = {1, 1, 1, 1, 3, 3, 3, 3, 9, 9, 9, 9, 27, 27, 27, 27};
        put_levels<Store>(x + 240, digits((U8x16)U32x4{fours, fours, fours, fours} * places), d);
    }
};

}  // namespace
