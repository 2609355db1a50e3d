// IQ4_KSS of ik_llama.cpp: as IQ4_KS, but four codes have 15 bits: the number of their bits is
// even. The sixteenth bit of such a word is one of the scale.
#pragma once
#include "iq_ks.hpp"

namespace {

// For each code, the level of the code `step` further, and the bits in which both differ; none
// where that changes no parity.
struct NeighbourCodes {
    static constexpr int8_t none = -128;
    int8_t levels[16], bits[16];

    constexpr NeighbourCodes(const LevelTable<16> &table, int step) : levels(), bits() {
        for (int code = 0; code < 16; ++code) {
            const int other = code + step, differ = code ^ other;
            const int parity = differ ^ differ >> 1 ^ differ >> 2 ^ differ >> 3;
            const bool is_one = other >= 0 && other < 16 && parity % 2 != 0;
            levels[code] = is_one ? table.of[other] : none;
            bits[code] = static_cast<int8_t>(is_one ? differ : 0);
        }
    }
};
template <const LevelTable<16> &Table>
constexpr NeighbourCodes neighbours_of[4] = {{Table, -2}, {Table, -1}, {Table, 1}, {Table, 2}};

// The nearest levels of four neighbours, but the number of bits of their codes is even: the code
// changes whose change costs least.
template <const LevelTable<16> &Table, class Lane>
class EvenCodes {
    using Int = IntOf<Lane>;
    Int word_, levels_;

    static KERNEL_INLINE Lane byte(Int word, int number) {
        return signed_byte(word, number);
    }

public:
    static constexpr float unit = UnevenCodes<Table, Lane>::unit;
    static constexpr bool is_weighted = true;

    KERNEL_INLINE EvenCodes(const Lane *scaled, const Lane *x, const Lane *weights, Lane scale)
        : word_(UnevenCodes<Table, Lane>(scaled).word()) {
        Int parity = word_ ^ shift_right(word_, 16);
        parity = parity ^ shift_right(parity, 8);
        parity = parity ^ shift_right(parity, 2);
        const auto is_odd = equal((parity ^ shift_right(parity, 1)) & 1, Int{} + 1);
        if (any(is_odd)) word_ = word_ ^ select(is_odd, change(x, weights, scale), Int{});
        levels_ = bytes_by_index(Table.of, word_);
    }
    KERNEL_INLINE Lane level(int j) const { return byte(levels_, j); }
    KERNEL_INLINE Int word() const { return word_; }

private:
    // ik_llama.cpp compares with the error of the plain level, even if levels are moved.
    KERNEL_INLINE Int change(const Lane *x, const Lane *weights, Lane scale) const {
        const Int levels = bytes_by_index(iq4_table.of, word_);
        Int others[4], bits[4], best{};
        for (int k = 0; k < 4; ++k) {
            others[k] = bytes_by_index(neighbours_of<Table>[k].levels, word_);
            bits[k] = bytes_by_index(neighbours_of<Table>[k].bits, word_);
        }
        Lane least = broadcast<Lane>(largest_float);
        UNROLL
        for (int j = 0; j < 4; ++j) {
            const Lane error = scale * byte(levels, j) - x[j];
            UNROLL
            for (int k = 0; k < 4; ++k) {
                const Lane level = byte(others[k], j), other = scale * level - x[j];
                const Lane cost = weights[j] * (other * other - error * error);
                const auto is_none = equal(level, broadcast<Lane>(NeighbourCodes::none));
                const auto better = and_(not_(is_none), less(cost, least));
                least = select(better, cost, least);
                best = select(better, bits[k] & static_cast<int32_t>(255u << 8 * j), best);
            }
        }
        return best;
    }
};

struct IQ4_KSS : OddScales<IQ4_KSS> {
    static constexpr uint32_t id = 146, block_bytes = 128;
    static constexpr const char *name = "IQ4_KSS";
    static constexpr int tries = 7, words = 32;
    static constexpr bool tries_usual = false;
    static constexpr float growth = 1.01f;
    static constexpr const auto &plain = iq4_table, &moved = iq4_moved_table;
    template <const auto &Table, class Lane>
    using Codes = EvenCodes<Table, Lane>;

    static constexpr int place(int i) { return i / 2 + 16 * (i % 2); }

    // The upper fifteen bits: each tells whether the codes' bits up to here are odd.
    template <class Int>
    static void put_codes(int group, const Int *words, Int *packed) {
        for (int i = 0; i < 8; ++i) {
            const Int pairs = (words[i] | shift_right(words[i], 4)) & 0x00FF00FF;
            Int code = (pairs | shift_right(pairs, 8)) & 0xFFFF;
            for (int shift = 1; shift < 16; shift *= 2) code = code ^ code << shift;
            packed[4 * group + i / 2] |= (code << 1 & 0xFFFE) << 16 * (i % 2);
        }
    }
    template <class Int>
    static void put_scale(int group, Int stored, Int moved, Int *packed) {
        for (int i = 0; i < 8; ++i) {
            packed[4 * group + i / 2] |= (((stored + moved) >> i) & 1) << 16 * (i % 2);
        }
    }
};

}  // namespace
