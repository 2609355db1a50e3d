// Shared by IQ4_NL and IQ4_XS: sixteen levels, closer together around zero.
#pragma once
#include "../extremes.hpp"

namespace {

constexpr I8x16 iq4_levels = {-127, -104, -83, -65, -49, -35, -22, -10,
                              1,    13,   25,  38,  53,  69,  89,  113};

// A number in parts of 256 is cut to 16 bits: the upper five name one of 32 buckets and the next
// four a place in it. A bucket has at most one middle between two levels. The upper half of its
// code is its first level; the lower half is chosen so that places beyond the middle carry into the
// next level.
struct Iq4Buckets {
    uint8_t codes[32];

    constexpr Iq4Buckets() : codes() {
        constexpr int8_t levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                       1,    13,   25,  38,  53,  69,  89,  113};
        for (int bucket = 0; bucket < 32; ++bucket) {
            const int begin = (bucket < 16 ? bucket : bucket - 32) * 16;
            int first = 0, middle = 16;
            for (int i = 0; i < 15; ++i) {
                const int place = levels[i] + levels[i + 1] - begin;
                if (place <= 0) ++first;
                if (place > 0 && place < 16) middle = place;
            }
            codes[bucket] = static_cast<uint8_t>(first * 16 + 16 - middle);
        }
    }
};
alignas(32) constexpr Iq4Buckets iq4_buckets;

// The nearest levels of four neighbours: best_index_int8 of ggml, where a middle belongs to the
// upper level and a NaN to the last.
template <class Lane>
struct Iq4Codes;

template <>
struct Iq4Codes<float> {
    static constexpr float unit = 1.0f;
    int32_t codes[4];

    explicit Iq4Codes(const float *scaled) {
        for (int j = 0; j < 4; ++j) {
            codes[j] = 15;
            for (int i = 0; i < 15; ++i) {
                codes[j] -= scaled[j] < (iq4_levels[i] + iq4_levels[i + 1]) * 0.5f;
            }
        }
    }
    float level(int j) const { return iq4_levels[codes[j]]; }
    int32_t word() const { return pack_bytes(codes[0], codes[1], codes[2], codes[3]); }
};

template <>
struct Iq4Codes<Floats> {
    static constexpr float unit = 256.0f;
    LaneU8 codes, levels;

    explicit KERNEL_INLINE Iq4Codes(const Floats *scaled) {
        const LaneI16 first = narrow(truncate(floor(scaled[0])), truncate(floor(scaled[1])));
        const LaneI16 last = narrow(truncate(floor(scaled[2])), truncate(floor(scaled[3])));
        const LaneU8 bucket = narrow_unsigned(shift_right(first, 11), shift_right(last, 11));
        const LaneU8 place = narrow_unsigned(shift_right(first, 7) & 15, shift_right(last, 7) & 15);
        codes = (lookup_32(iq4_buckets.codes, bucket) + place) >> 4;
        levels = lookup_16((U8x16)iq4_levels, codes);
    }
    KERNEL_INLINE Floats level(int j) const { return to_floats(nth_of_lane(levels, j)); }
    KERNEL_INLINE Ints word() const { return deinterleave(codes); }
};

}  // namespace
