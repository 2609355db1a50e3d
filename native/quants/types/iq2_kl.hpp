// IQ2_KL of ik_llama.cpp: a code names the levels of two neighbours. Of all pairs of the levels of
// IQ3_K, half have a code.
#pragma once
#include "iq_ks.hpp"

namespace {

// The levels of each code.
constexpr int8_t pair_firsts[32] = {
    -63, -63, -40, -40, -40, -40, -23, -23, -23, -23, -23, -10, -10, -10, -10, 1, 1, 1, 1, 1, 13,
    13, 13, 13, 13, 28, 28, 28, 28, 28, 47, 47};
constexpr int8_t pair_seconds[32] = {
    -23, 13, -63, -10, 13, 47, -40, -23, 1, 13, 28, -63, 1, 13, 47, -23, -10, 1, 13, 28, -40, -23,
    -10, 1, 13, -63, -23, 1, 28, 47, -23, 13};
// The codes that may be nearest to two elements, in ik_llama.cpp's order, by 8 times the nearest
// level of the first plus that of the second. It lists eight neighbours of a pair without a code;
// here those are left out that are nowhere nearer than one before them.
constexpr int8_t pair_codes[4][64] = {
    {2, 0, 0, 0, 1, 1, 1, 5, 2, 6, 3, 3, 3, 4, 4, 5, 11, 6, 7, 8, 8, 9, 10, 14, 11, 6, 15, 12, 12,
     13, 19, 14, 11, 20, 15, 16, 17, 18, 19, 14, 25, 20, 21, 22, 23, 24, 19, 29, 25, 20, 26, 27, 27,
     27, 28, 29, 25, 30, 30, 30, 31, 31, 31, 29},
    {0, 2, 0, 1, 3, 1, 5, 1, 2, 2, 7, 3, 4, 4, 10, 5, 2, 6, 7, 7, 8, 9, 10, 5, 11, 15, 7, 16, 12,
     13, 10, 14, 20, 15, 15, 16, 17, 18, 19, 19, 11, 20, 21, 22, 23, 24, 24, 19, 25, 26, 26, 26, 27,
     24, 28, 29, 30, 25, 30, 27, 27, 31, 28, 31},
    {2, 6, 0, 3, 8, 1, 10, 5, 2, 0, 0, 3, 8, 4, 5, 5, 6, 6, 7, 3, 8, 9, 10, 10, 11, 11, 12, 7, 12,
     13, 13, 14, 15, 11, 15, 16, 17, 18, 19, 14, 20, 20, 21, 22, 23, 24, 28, 14, 25, 25, 26, 22, 27,
     28, 28, 29, 25, 20, 30, 31, 31, 31, 31, 29},
    {2, 0, 0, 0, 1, 1, 1, 5, 2, 3, 3, 3, 3, 4, 4, 5, 11, 6, 7, 16, 8, 9, 10, 14, 11, 20, 15, 12, 12,
     13, 14, 14, 11, 20, 15, 16, 17, 18, 19, 14, 25, 20, 21, 22, 23, 24, 19, 24, 25, 20, 26, 27, 27,
     31, 28, 29, 25, 30, 30, 22, 31, 31, 31, 29}};

// The nearest codes of four pairs, whose first elements come before their second ones.
template <class Lane>
class PairCodes {
    using Int = IntOf<Lane>;
    Int word_{};
    Lane levels_[8];

public:
    KERNEL_INLINE PairCodes(const Lane *x, const Lane *weights, Lane inverse) {
        using Codes = UnevenCodes<iq3_table, Lane>;
        Lane scaled[8], inside[8], least[4];
        UNROLL
        for (int i = 0; i < 8; ++i) {
            scaled[i] = inverse * x[i];
            inside[i] = in_range<true>(scaled[i]) * Codes::unit;
        }
        const Int cells = Codes(inside).word() << 3 | Codes(inside + 4).word();
        UNROLL
        for (int k = 0; k < 4; ++k) {
            const Int codes = bytes_by_index(pair_codes[k], cells);
            const Int firsts = bytes_by_index(pair_firsts, codes);
            const Int seconds = bytes_by_index(pair_seconds, codes);
            UNROLL
            for (int j = 0; j < 4; ++j) {
                const Lane first = signed_byte(firsts, j), second = signed_byte(seconds, j);
                const Lane a = first - scaled[j], b = second - scaled[4 + j];
                const Lane distance = weights[j] * a * a + weights[4 + j] * b * b;
                const auto nearer = k == 0 ? not_(no_lane<Lane>()) : less(distance, least[j]);
                least[j] = select(nearer, distance, least[j]);
                levels_[j] = select(nearer, first, levels_[j]);
                levels_[4 + j] = select(nearer, second, levels_[4 + j]);
                const Int mask = broadcast_int<Int>(static_cast<int32_t>(255u << 8 * j));
                word_ = select(nearer, (word_ & ~mask) | (codes & mask), word_);
            }
        }
    }
    KERNEL_INLINE Lane level(int i) const { return levels_[i]; }
    KERNEL_INLINE Int word() const { return word_; }
};

struct IQ2_KL : SignedScales<IQ2_KL> {
    static constexpr uint32_t id = 157, block_bytes = 86;
    static constexpr const char *name = "IQ2_KL";
    static constexpr int words = 20, tries = 5, lowest_level = -63, scale_offset = 32;
    static constexpr bool drops_zeros = true;
    static constexpr float share = 2.25f / 256, growth = 1.025f, growth_unfitted = growth;

    // Four first elements of pairs, then their second ones.
    static constexpr int place(int i) { return i / 8 * 8 + i % 4 * 2 + i / 4 % 2; }

    template <class Lane>
    static KERNEL_INLINE Lane unweighted(Lane x, Lane) {
        return absolute(x);
    }
    template <class Lane>
    static Lane scale_of(Lane extreme) {
        return (Lane{} - extreme) / 32.0f;
    }

    template <class Lane>
    static BestScale<Lane> fit(const Lane *x, const Lane *weights, Lane extreme) {
        BestScale<Lane> best{Lane{}, Lane{}, no_lane<Lane>()};
        const Lane usual = -extreme / static_cast<float>(lowest_level);
        attempt(x, weights, 1.0f / usual, true, best);
        for (int i = -tries; i <= tries; ++i) {
            const Lane first = broadcast<Lane>(i + lowest_level);
            attempt(x, weights, first / extreme, false, best);
        }
        return best;
    }

    // The scale near the requested one with the least error.
    template <class Lane>
    static IntOf<Lane> group_scale(Lane requested, const Lane *x, const Lane *weights,
                                   Lane row_scale) {
        using Int = IntOf<Lane>;
        const Int middle = nearest_within(requested, -32, 31);
        Int best = middle;
        Lane least = broadcast<Lane>(largest_float);
        for (int step = -1; step <= 1; ++step) {
            const Int here = middle + step;
            const Lane error = error_of_codes(x, weights, row_scale * to_floats(here));
            const auto inside = equal(maximum(minimum(here, broadcast_int<Int>(31)),
                                              broadcast_int<Int>(-32)), here);
            const auto better = and_(inside, less(error, least));
            least = select(better, error, least);
            best = select(better, here, best);
        }
        return best;
    }

    template <class Lane>
    static void choose(const Lane *x, const Lane *weights, Lane scale, MaskOf<Lane> &,
                       IntOf<Lane> *words, Lane *levels) {
        const Lane inverse = inverse_or_zero(scale);
        for (int i = 0; i < 32; i += 8) {
            const PairCodes<Lane> codes(x + i, weights + i, inverse);
            words[i / 8] = codes.word();
            for (int j = 0; j < 8; ++j) levels[i + j] = codes.level(j);
        }
    }

    template <class Lane>
    static void sum_up(const Lane *x, const Lane *weights, const Lane *levels, Lane *sums) {
        for (int i = 0; i < 32; i += i % 4 == 3 ? 5 : 1) {
            const Lane first = weights[i] * levels[i], second = weights[i + 4] * levels[i + 4];
            sums[0] = sums[0] + (first * x[i] + second * x[i + 4]);
            sums[1] = sums[1] + (first * levels[i] + second * levels[i + 4]);
        }
    }

    template <class Int>
    static void put_codes(int group, const Int *words, Int *packed) {
        for (int i = 0; i < 4; ++i) {
            packed[group / 2 * 4 + i] |= (words[i] & 0x0F0F0F0F) << 4 * (group % 2);
            packed[16 + i] |= ((words[i] >> 4) & 0x01010101) << group;
        }
    }
    template <class Int>
    static void put_scale(int group, Int stored, Int, Int *header) {
        header[0] |= stored >> 4 << 2 * group;
        header[1] |= (stored & 15) << (8 * (group % 4) + 4 * (group / 4));
    }

private:
    // Sums under an inverse scale and its negative, and what they change.
    template <class Lane>
    static void attempt(const Lane *x, const Lane *weights, Lane inverse, bool is_first,
                        BestScale<Lane> &best) {
        Lane sums[2][2] = {};
        for (int i = 0; i < 32; i += 8) {
            for (int k = 0; k < 2; ++k) {
                const PairCodes<Lane> codes(x + i, weights + i, k == 0 ? inverse : -inverse);
                UNROLL
                for (int j = 0; j < 4; ++j) {
                    const Lane first = weights[i + j] * codes.level(j);
                    const Lane second = weights[i + 4 + j] * codes.level(4 + j);
                    sums[k][0] = sums[k][0] + (first * x[i + j] + second * x[i + 4 + j]);
                    sums[k][1] =
                        sums[k][1] + (first * codes.level(j) + second * codes.level(4 + j));
                }
            }
        }
        if (is_first) {
            best.scale = sums[0][0] / sums[0][1];
            best.score = best.scale * sums[0][0];
        } else {
            best.settle(sums[0][0], sums[0][1]);
        }
        best.settle(sums[1][0], sums[1][1]);
    }

    template <class Lane>
    static Lane error_of_codes(const Lane *x, const Lane *weights, Lane scale) {
        const Lane inverse = inverse_or_zero(scale);
        Lane sum{};
        for (int i = 0; i < 32; i += 8) {
            const PairCodes<Lane> codes(x + i, weights + i, inverse);
            UNROLL
            for (int j = 0; j < 4; ++j) {
                const Lane a = scale * codes.level(j) - x[i + j];
                const Lane b = scale * codes.level(4 + j) - x[i + 4 + j];
                sum = sum + (weights[i + j] * a * a + weights[i + 4 + j] * b * b);
            }
        }
        return sum;
    }
};

}  // namespace
