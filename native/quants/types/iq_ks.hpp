// IQ2_KS to IQ5_KS of ik_llama.cpp: groups of 32 codes choose between the levels of a table and the
// same ones, moved.
#pragma once
#include "../searches/level_splits.hpp"
#include "scaled_rows.hpp"

namespace {

// A float for the row, odd scales up to 127, and a byte of each for a group.
template <class Type>
struct OddScales : ScaledRow<Type> {
    static constexpr uint32_t row_prefix = 4;
    static constexpr int scale_offset = 127;

    template <class Lane>
    static Lane scale_of(Lane extreme) {
        return absolute(extreme) / 127.0f;
    }
    template <class Lane>
    static IntOf<Lane> group_scale(Lane requested, const Lane *, const Lane *, Lane) {
        return nearest_within((requested + 127.0f) * 0.5f, 0, 127) * 2 - 127;
    }
    template <class Int>
    static void put_scale(int group, Int stored, Int moved, Int *header) {
        header[group / 4] |= (stored + moved) << 8 * (group % 4);
    }
};

// A half for the row, and signed scales of 5 bits.
template <class Type>
struct SignedScales : ScaledRow<Type> {
    static constexpr uint32_t row_prefix = 2;
    static constexpr int scale_offset = 16, bits = 2;

    template <class Lane>
    static Lane scale_of(Lane extreme) {
        return -extreme / 16.0f;
    }
    template <class Lane>
    static IntOf<Lane> group_scale(Lane requested, const Lane *, const Lane *, Lane) {
        return nearest_within(requested, -16, 15);
    }
};

struct IQ4_KS : OddScales<IQ4_KS> {
    static constexpr uint32_t id = 144, block_bytes = 136;
    static constexpr const char *name = "IQ4_KS";
    static constexpr int tries = 7, words = 32;
    static constexpr const auto &plain = iq4_table, &moved = iq4_moved_table;

    template <class Lane>
    static void sum_up(const Lane *x, const Lane *weights, const Lane *levels, Lane *sums) {
        for (int i = 0; i < 16; ++i) {
            const Lane low = weights[i] * levels[i], high = weights[16 + i] * levels[16 + i];
            sums[0] = sums[0] + (low * x[i] + high * x[16 + i]);
            sums[1] = sums[1] + (low * levels[i] + high * levels[16 + i]);
        }
    }
    template <class Int>
    static void put_codes(int group, const Int *words, Int *packed) {
        for (int i = 0; i < 4; ++i) packed[4 * group + i] = words[i] | words[4 + i] << 4;
    }
};

struct IQ5_KS : OddScales<IQ5_KS> {
    static constexpr uint32_t id = 152, block_bytes = 168;
    static constexpr const char *name = "IQ5_KS";
    static constexpr int tries = 5, words = 40, bits = 4;
    static constexpr const auto &plain = iq5_table, &moved = iq5_moved_table;
};

struct IQ3_KS : SignedScales<IQ3_KS> {
    static constexpr uint32_t id = 156, block_bytes = 102;
    static constexpr const char *name = "IQ3_KS";
    static constexpr int tries = 5, words = 24;
    static constexpr bool keeps_usual = true;
    static constexpr const auto &plain = iq3_table, &moved = iq3_moved_table;

    template <class Int>
    static void put_scale(int group, Int stored, Int moved, Int *header) {
        header[0] |= stored >> 4 << group | moved << (8 + group);
        header[1] |= (stored & 15) << (8 * (group % 4) + 4 * (group / 4));
    }
};

struct IQ2_KS : SignedScales<IQ2_KS> {
    static constexpr uint32_t id = 145, block_bytes = 70;
    static constexpr const char *name = "IQ2_KS";
    static constexpr int words = 16;
    static constexpr bool drops_zeros = true, casts = false;
    static constexpr float share = 1.5f, second_share = 1.0f / 256;
    static constexpr float growth = 1.030f, growth_unfitted = growth;
    static constexpr const auto &plain = iq2_table, &moved = iq2_moved_table;

    template <class Lane>
    static KERNEL_INLINE Lane unweighted(Lane x, Lane share) {
        return 0.25f * share + x * x;
    }
    template <class Lane>
    static BestScale<Lane> fit(const Lane *x, const Lane *weights, Lane extreme) {
        return LevelSplits<32, 8, Lane>(x, weights).run(extreme);
    }
    template <class Lane>
    static Lane row_scale(const LaneRows<Lane> &rows, Lane extreme, Lane &inverse) {
        return fit_row_scale<IQ2_KS>(rows, extreme, inverse);
    }
    template <class Int>
    static void put_scale(int group, Int stored, Int moved, Int *header) {
        header[0] |= moved << group | stored >> 4 << (8 + group);
        header[1] |= (stored & 15) << 4 * group;
    }
};

}  // namespace
