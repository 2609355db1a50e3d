// Holds every primitive of one instruction set, lane by lane, to what it means for one number.
// test_primitives.py compiles it with the flags of each instruction set.
#include <cmath>
#include <cstdio>
#include <limits>
#include <vector>

#include "../../native/quants/extremes.hpp"

namespace {

int failures = 0;

void expect(bool holds, const char *primitive) {
    if (holds) return;
    if (failures++ < 20) printf("%s is wrong\n", primitive);
}

bool same(float a, float b) { return bits_of(a) == bits_of(b) || (a != a && b != b); }
bool same(int32_t a, int32_t b) { return a == b; }

// Numbers at which implementations differ, then any bits.
std::vector<float> numbers() {
    const float infinity = std::numeric_limits<float>::infinity();
    std::vector<float> all = {0.0f,       -0.0f,        0.5f,        -0.5f,         1.5f,
                              2.5f,       -2.5f,        0.49999997f, 1e-40f,        6.1e-5f,
                              5.96e-8f,   2.98e-8f,     65504.0f,    65520.0f,      1e38f,
                              -1e38f,     infinity,     -infinity,   2147483648.0f, -2147483648.0f,
                              4194303.5f, std::nanf("")};
    uint32_t bits = 1;
    while (all.size() < 4096) all.push_back(float_of(bits = bits * 1664525 + 1013904223));
    return all;
}

template <class Lane, class Expected>
void lanewise(const char *primitive, Lane made, Expected expected) {
    for (int i = 0; i < lanes; ++i) expect(same(made[i], expected(i)), primitive);
}

template <class Expected>
void maskwise(const char *primitive, Mask mask, Expected expected) {
    for (int i = 0; i < lanes; ++i) expect((movemask(mask) >> i & 1) == expected(i), primitive);
}

void check_comparisons(Floats a, Floats b) {
    const Ints c = bits_of(a), d = bits_of(b);
    maskwise("less", less(a, b), [&](int i) { return a[i] < b[i]; });
    maskwise("equal", equal(a, b), [&](int i) { return a[i] == b[i]; });
    maskwise("is_nan", is_nan(a), [&](int i) { return a[i] != a[i]; });
    maskwise("greater", greater(c, d), [&](int i) { return c[i] > d[i]; });
    maskwise("not_", not_(less(a, b)), [&](int i) { return !(a[i] < b[i]); });
    const Mask mask = less(a, b);
    lanewise("select", select(mask, a, b), [&](int i) { return a[i] < b[i] ? a[i] : b[i]; });
    lanewise("select", select(mask, c, d), [&](int i) { return a[i] < b[i] ? c[i] : d[i]; });
    lanewise("increment", increment(c & 255, mask),
             [&](int i) { return (c[i] & 255) + (a[i] < b[i]); });
    lanewise("maximum", maximum(a, b), [&](int i) { return a[i] > b[i] ? a[i] : b[i]; });
    lanewise("minimum", minimum(a, b), [&](int i) { return a[i] < b[i] ? a[i] : b[i]; });
    lanewise("maximum", maximum(c, d), [&](int i) { return c[i] > d[i] ? c[i] : d[i]; });
    lanewise("minimum", minimum(c, d), [&](int i) { return c[i] < d[i] ? c[i] : d[i]; });
}

void check_arithmetic(Floats a, Floats b) {
    lanewise("square_root", square_root(a), [&](int i) { return std::sqrt(a[i]); });
    lanewise("floor", floor(a), [&](int i) { return std::floor(a[i]); });
    lanewise("truncate", truncate(a), [&](int i) { return truncate(float{a[i]}); });
    lanewise("round_half_away", round_half_away(a),
             [&](int i) { return round_half_away(float{a[i]}); });
    lanewise("inverse_or_zero", inverse_or_zero(a),
             [&](int i) { return inverse_or_zero(float{a[i]}); });
    lanewise("half_of_float", half_of_float(a),
             [&](int i) { return int32_t{half_of_float(float{a[i]})}; });
    const Floats near = select(less(absolute(a), broadcast(4e6f)), a, broadcast(2.5f));
    // The sign of zero is any: nothing depends on it.
    lanewise("nearest", nearest(near) + 0.0f,
             [&](int i) { return std::nearbyint(near[i]) + 0.0f; });
    // Once or twice rounded.
    const Floats difference = fmsub(a, b, near);
    for (int i = 0; i < lanes; ++i) {
        const bool is_once = same(difference[i], std::fma(a[i], b[i], -near[i]));
        expect(is_once || same(difference[i], a[i] * b[i] - near[i]), "fmsub");
    }
}

int32_t clamped(int32_t value, int32_t low, int32_t high) {
    return value < low ? low : value > high ? high : value;
}

void check_bytes(Floats a, Floats b) {
    Ints four[4] = {truncate(a), truncate(b), bits_of(a) >> 23, bits_of(b) >> 24};
    const LaneI8 bytes = four_bytes(four);
    const LaneU8 naturals = narrow_unsigned(narrow(four[0], four[1]), narrow(four[2], four[3]));
    const Ints word = deinterleave((LaneU8)bytes), positive = deinterleave(naturals);
    const Ints capped = deinterleave((LaneU8)minimum(bytes, 15));
    for (int n = 0; n < 4; ++n) {
        const auto byte = [&](int i) { return clamped(four[n][i], -128, 127); };
        lanewise("nth_of_lane", nth_of_lane((LaneU8)bytes, n), byte);
        lanewise("narrow_signed, deinterleave", word << (24 - 8 * n) >> 24, byte);
        lanewise("narrow_unsigned", shift_right(positive, 8 * n) & 255,
                 [&](int i) { return clamped(four[n][i], 0, 255); });
        lanewise("minimum of bytes", capped << (24 - 8 * n) >> 24,
                 [&](int i) { return byte(i) < 15 ? byte(i) : 15; });
    }
    lanewise("pack_bytes", pack_bytes(four[0], four[1], four[2], four[3]),
             [&](int i) { return pack_bytes(four[0][i], four[1][i], four[2][i], four[3][i]); });
}

void check_tables(Floats a) {
    alignas(32) uint8_t table[32];
    for (int i = 0; i < 32; ++i) table[i] = static_cast<uint8_t>(i * 37 + 5);
    const LaneU8 any = (LaneU8)bits_of(a);
    const LaneU8 sixteenth = lookup_16(load_u8x16(table), any & 15);
    const LaneU8 found = lookup_32(table, any & 31);
    for (int i = 0; i < 4 * lanes; ++i) {
        expect(sixteenth[i] == table[any[i] & 15], "lookup_16");
        expect(found[i] == table[any[i] & 31], "lookup_32");
    }
    const U8x16 index = load_u8x16((const uint8_t *)&any) & 15;
    for (int i = 0; i < 16; ++i) {
        expect(lookup(load_u8x16(table), index)[i] == table[index[i]], "lookup");
        const Ints part = widen((I8x16)load_u8x16(table), i / lanes);
        expect(part[i % lanes] == static_cast<int8_t>(table[i]), "widen");
        expect(spread_bits(bits_of(float{a[0]}))[i] == (bits_of(float{a[0]}) >> i & 1 ? 255 : 0),
               "spread_bits");
        expect(spread_nibbles(table)[i] == (i < 8 ? table[i] & 15 : table[i - 8] >> 4),
               "spread_nibbles");
    }
    const Ints any_lane = bits_of(a);
    lanewise("permute", permute(a, any_lane), [&](int i) { return a[any_lane[i] & (lanes - 1)]; });
    const Floats fours = to_floats(lane_numbers() & 3);
    lanewise("permute_in_fours", permute_in_fours(fours, any_lane),
             [&](int i) { return static_cast<float>(any_lane[i] & 3); });
}

void check_memory() {
    Floats rows[lanes];
    for (int i = 0; i < lanes; ++i) rows[i] = to_floats(lane_numbers() + i * lanes);
    transpose(rows);
    for (int i = 0; i < lanes; ++i) {
        lanewise("transpose", rows[i], [&](int j) { return static_cast<float>(j * lanes + i); });
    }
    alignas(64) float streamed[lanes];
    stream(streamed, rows[1]);
    finish_streaming();
    lanewise("stream", load(streamed), [&](int i) { return rows[1][i]; });
    uint8_t halves[2 * lanes];
    for (int first = 0; first < 65536; first += lanes) {
        const Ints own = lane_numbers() + first;
        store_halves(halves, own);
        lanewise("store_halves, load_halves", load_halves(halves), [&](int i) { return own[i]; });
        const auto expected = [&](int i) { return float_of_half(static_cast<uint16_t>(own[i])); };
        lanewise("float_of_half", float_of_half(own), expected);
        expect(same(scalar_of_half(static_cast<uint16_t>(first)), expected(0)), "scalar_of_half");
    }
    for (uint32_t mask = 0; mask <= all_lanes; ++mask) {
        const Ints made = compress_lanes(mask);
        uint32_t left = mask;
        for (int i = 0; left != 0; ++i, left &= left - 1) {
            expect(made[i] == __builtin_ctz(left), "compress_lanes");
        }
    }
}

}  // namespace

int main() {
    const std::vector<float> all = numbers();
    for (size_t i = 0; i + lanes <= all.size(); i += lanes) {
        for (size_t shift : {0, 1, 17}) {
            const size_t other = i + shift + lanes <= all.size() ? i + shift : 0;
            const Floats a = load(&all[i]), b = load(&all[other]);
            check_comparisons(a, b);
            check_arithmetic(a, b);
            check_bytes(a, b);
        }
        check_tables(load(&all[i]));
    }
    check_memory();
    printf("%d lanes: %d wrong\n", lanes, failures);
    return failures != 0;
}
