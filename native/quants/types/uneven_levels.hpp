// Levels closer together around zero, and how to find the nearest.
#pragma once
#include "../extremes.hpp"

namespace {

// A table of levels. `nudge`, in parts of 256, moves numbers up before they are compared with the
// middles between levels: ik_llama.cpp's comparison x - a < b - x rounds both sides, so in the
// moved tables one middle begins a little earlier.
template <int Count>
struct LevelTable {
    static constexpr int count = Count;
    int8_t of[Count < 16 ? 16 : Count];
    float nudge;

    constexpr LevelTable moved(int shift, float by) const {
        LevelTable table{{}, by};
        for (int i = 0; i < Count; ++i) table.of[i] = static_cast<int8_t>(of[i] + shift);
        return table;
    }
};
constexpr LevelTable<4> iq2_table = {{-31, -13, 1, 17}, 0.0f};
constexpr LevelTable<8> iq3_table = {{-63, -40, -23, -10, 1, 13, 28, 47}, 0.0f};
constexpr LevelTable<16> iq4_table = {
    {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}, 0.0f};
constexpr LevelTable<32> iq5_table = {
    {-126, -114, -103, -92, -83, -74, -65, -57, -50, -43, -36, -30, -24, -18, -12, -6,
     -1,   5,    11,   17,  23,  29,  36,  43,  51,  59,  68,  77,  87,  97,  109, 121},
    0.0f};
constexpr LevelTable<64> iq6_table = {
    {-127, -121, -115, -109, -104, -98, -93, -88, -84, -79, -74, -70, -66, -62, -58, -54,
     -51,  -47,  -44,  -40,  -37,  -34, -31, -28, -25, -22, -19, -16, -13, -11, -8,  -5,
     -2,   0,    3,    6,    9,    12,  14,  17,  20,  23,  27,  30,  33,  36,  40,  44,
     47,   51,   55,   59,   63,   68,  72,  77,  82,  87,  92,  98,  103, 109, 115, 121},
    0.0f};
constexpr LevelTable<4> iq2_moved_table = iq2_table.moved(5, 0x1p-14f);
constexpr LevelTable<8> iq3_moved_table = iq3_table.moved(4, 0x1p-14f);
constexpr LevelTable<16> iq4_moved_table = iq4_table.moved(4, 0x1p-14f);
constexpr LevelTable<32> iq5_moved_table = iq5_table.moved(2, 0x1.8p-16f);
constexpr LevelTable<64> iq6_moved_table = iq6_table.moved(1, 0x1p-17f);

// A number in parts of 256 is cut to 16 bits: the upper ones name a bucket, and the next ones a
// place in it. A bucket has at most one middle between two levels. The upper bits of its code are
// its first level; the lower ones are chosen so that places beyond the middle carry into the next
// level.
template <const auto &Table>
struct LevelBuckets {
    static constexpr int count = Table.count > 32 ? 128 : Table.count > 16 ? 64 : 32;
    static constexpr int places = 512 / count, level_shift = places == 4 ? 2 : places == 8 ? 3 : 4;
    alignas(64) uint8_t codes[count];

    constexpr LevelBuckets() : codes() {
        for (int bucket = 0; bucket < count; ++bucket) {
            const int begin = (bucket < count / 2 ? bucket : bucket - count) * places;
            int first = 0, middle = places;
            for (int i = 0; i < Table.count - 1; ++i) {
                const int place = Table.of[i] + Table.of[i + 1] - begin;
                if (place <= 0) ++first;
                if (place > 0 && place < places) middle = place;
            }
            codes[bucket] = static_cast<uint8_t>(first * places + places - middle);
        }
    }
};
template <const auto &Table>
constexpr LevelBuckets<Table> buckets_of;

// Looks up bytes in a table of 16 to 128.
template <int Count>
KERNEL_INLINE LaneU8 lookup_bytes(const uint8_t *bytes, LaneU8 index) {
    if constexpr (Count == 16) return lookup_16(load_u8x16(bytes), index);
    if constexpr (Count == 32) return lookup_32(bytes, index);
    if constexpr (Count > 32) {
        constexpr uint8_t half = Count / 2, last = half - 1;
        const auto upper = (LaneU8)(index > last);
        const LaneU8 low = lookup_bytes<half>(bytes, index & last);
        return (low & ~upper) | (lookup_bytes<half>(bytes + half, index & last) & upper);
    }
}
template <class Byte, int Count>
KERNEL_INLINE LaneU8 lookup_all(const Byte (&table)[Count], LaneU8 index) {
    return lookup_bytes<Count>(reinterpret_cast<const uint8_t *>(table), index);
}

// Looks up the four bytes of a word in a table.
template <int Count>
KERNEL_INLINE Ints bytes_by_index(const int8_t (&table)[Count], Ints word) {
    return (Ints)lookup_all(table, (LaneU8)word);
}
template <int Count>
KERNEL_INLINE int32_t bytes_by_index(const int8_t (&table)[Count], int32_t word) {
    return pack_bytes(table[word & 255], table[word >> 8 & 255], table[word >> 16 & 255],
                      table[word >> 24 & 255]);
}

// A byte of a word, with its sign.
template <class Int>
KERNEL_INLINE auto signed_byte(Int word, int number) {
    return to_floats(low_byte(shift_right(word, 8 * number)));
}

// The nearest levels of four neighbours, scaled to parts of `unit`: best_index_int8 of ggml and the
// best_index functions of ik_llama.cpp. A middle belongs to the upper level and a NaN to the last.
template <const auto &Table, class Lane>
struct UnevenCodes;

template <const auto &Table>
struct UnevenCodes<Table, float> {
    static constexpr float unit = 1.0f;
    static constexpr bool is_weighted = false;
    int32_t codes[4];

    explicit UnevenCodes(const float *scaled) {
        for (int j = 0; j < 4; ++j) {
            codes[j] = Table.count - 1;
            for (int i = 0; i < Table.count - 1; ++i) {
                const int middle = Table.of[i] + Table.of[i + 1];
                codes[j] -= scaled[j] * 256.0f + Table.nudge < 128.0f * middle;
            }
        }
    }
    float level(int j) const { return Table.of[codes[j]]; }
    int32_t word() const { return pack_bytes(codes[0], codes[1], codes[2], codes[3]); }
};

template <const auto &Table>
struct UnevenCodes<Table, Floats> {
    static constexpr float unit = 256.0f;
    static constexpr bool is_weighted = false;
    LaneU8 codes, levels;

    explicit KERNEL_INLINE UnevenCodes(const Floats *scaled) {
        using Buckets = LevelBuckets<Table>;
        constexpr int shift = Buckets::level_shift;
        constexpr int16_t inside = Buckets::places - 1;
        LaneI16 halves[2];
        UNROLL
        for (int j = 0; j < 2; ++j) {
            Floats low = scaled[2 * j], high = scaled[2 * j + 1];
            if constexpr (Table.nudge > 0) low = low + Table.nudge, high = high + Table.nudge;
            halves[j] = narrow(truncate(floor(low)), truncate(floor(high)));
        }
        const LaneU8 bucket = narrow_unsigned(shift_right(halves[0], shift + 7),
                                              shift_right(halves[1], shift + 7));
        const LaneU8 place = narrow_unsigned(shift_right(halves[0], 7) & inside,
                                             shift_right(halves[1], 7) & inside);
        codes = (lookup_all(buckets_of<Table>.codes, bucket) + place) >> shift;
        levels = lookup_all(Table.of, codes);
    }
    KERNEL_INLINE Floats level(int j) const { return to_floats(nth_of_lane(levels, j)); }
    KERNEL_INLINE Ints word() const { return deinterleave(codes); }

};

}  // namespace
