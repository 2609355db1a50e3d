// IQ2_K to IQ6_K of ik_llama.cpp: 16 groups of 16 codes choose between the levels of a table and
// the same ones, moved. Each group has a scale in parts of that of the block.
#pragma once
#include "../codec.hpp"
#include "../searches/level_splits.hpp"
#include "../searches/symmetric.hpp"

namespace {

// Adds `Width` bits of 256 codes, from bit `first` on, to words: groups of `Size` elements share
// bytes. A word of `codes` has four codes.
template <int Width, int Size, class Int>
KERNEL_INLINE void put_fields(const Int *codes, int first, Int *words) {
    constexpr int step = Size / 4, sharing = 8 / Width, mask = 0x01010101 * ((1 << Width) - 1);
    for (int i = 0; i < 64; ++i) {
        const int group = i / step;
        words[group / sharing * step + i % step] |= (shift_right(codes[i], first) & mask)
                                                    << Width * (group % sharing);
    }
}

// What most of these types have in common; the others have members of the same names.
template <class Type>
struct MovedGroups : EncodesAnyLane<Type> {
    static constexpr uint32_t block_size = 256;
    static constexpr Weights weights = weights_taken;
    static constexpr int group_size = 16, tries = 5, step = 1;
    static constexpr bool tries_usual = true, keeps_usual = false, casts = true;
    // Without, there is no last fit of a group's scale, weights are squares, and codes of a group
    // whose scale is 0 are those of the level nearest to 0.
    static constexpr bool refits = true;
    static constexpr float square_share = 2.0f, growth = 1.0f;  // growth of the block's scale
    // The packed block: words before the codes, low bits of all codes, which elements so far apart
    // share a byte, and upper bits.
    static constexpr int header = 4, low_bits = 4, apart = 32, high_bits = 0;
    static constexpr int lowest_scale = -32, top_scale = 31, scale_bits = 6, divisor = 32;
    template <const auto &Table, class Lane>
    using Codes = UnevenCodes<Table, Lane>;

    template <class Lane, class Importance>
    static MaskOf<Lane> encode(const Lane *x, const Importance &importance, uint8_t *bytes) {
        using Int = IntOf<Lane>;
        Lane weights_here[256], scales[16], sum{};
        Int moved{};
        for (int i = 0; i < 256; ++i) sum = sum + x[i] * x[i];
        const Lane share =
            Type::refits ? Type::square_share * sum / 256.0f : sum * (Type::square_share / 256.0f);
        for (int group = 0; group < 16; ++group) {
            const Lane *own = x + 16 * group;
            Lane *own_weights = weights_here + 16 * group;
            weigh(own, 16 * group, importance, share, own_weights);
            const auto fit = Type::fit(own, own_weights);
            const auto empty = less(largest_number<16>(own), broadcast<Lane>(1e-16f));
            scales[group] = select(empty, Lane{}, fit.scale);
            moved = select(and_(fit.is_moved, not_(empty)), moved | 1 << group, moved);
        }
        pack(x, weights_here, scales, moved, bytes);
        return no_lane<Lane>();
    }

    template <class Lane>
    static BestScale<Lane> fit(const Lane *x, const Lane *weights_here) {
        auto best = fit_moved_levels<Type>(x, weights_here, extreme_of<16>(x));
        if constexpr (Type::refits) {
            IntOf<Lane> codes[4];
            Lane levels[16], product{}, square{};
            choose_moved_levels<Type>(x, weights_here, best.scale, best.is_moved, codes, levels);
            sum_up(x, weights_here, levels, product, square);
            const auto fits = and_(less(Lane{}, square), not_(equal(best.scale, Lane{})));
            best.scale = select(fits, product / square, best.scale);
        }
        return best;
    }
    // The scale of the block, from those of its groups; tells which blocks are zeros.
    template <class Lane>
    static KERNEL_INLINE Lane block_scale(const Lane *scales, const Lane *, MaskOf<Lane> &zeros) {
        const Lane extreme = extreme_of<16>(scales);
        if (Type::refits) zeros = equal(extreme, Lane{});
        return -extreme / static_cast<float>(Type::divisor);
    }
    // The scale of a group, from what it is in parts of the block's.
    template <class Lane>
    static KERNEL_INLINE IntOf<Lane> group_scale(Lane requested, Lane) {
        return nearest_within(requested, Type::lowest_scale, Type::top_scale);
    }
    template <class Int>
    static KERNEL_INLINE void put_scale(int group, Int scale, Int *words) {
        if constexpr (Type::scale_bits == 8) {
            words[1 + group / 4] |= (scale & 255) << 8 * (group % 4);
        } else {
            const Int stored = scale - Type::lowest_scale;
            if (Type::scale_bits == 6) words[1] |= shift_right(stored, 4) << 2 * group;
            words[Type::header - 2 + group / 8] |= (stored & 15) << 4 * (group % 8);
        }
    }

private:
    template <class Lane, class Importance>
    static KERNEL_INLINE void weigh(const Lane *x, int first, const Importance &importance,
                                    Lane share, Lane *weights_here) {
        if constexpr (is_weighted<Importance>) {
            importance.template load<16>(first, weights_here);
            replace_zero_importance<16>(x, weights_here);
        }
        for (int i = 0; i < 16; ++i) {
            const Lane square = x[i] * x[i];
            if constexpr (is_weighted<Importance>) {
                weights_here[i] = weights_here[i] * square_root(share + square);
            } else {
                weights_here[i] = Type::refits ? 0.25f * share + square : square;
            }
        }
    }

    template <class Lane>
    static KERNEL_INLINE void sum_up(const Lane *x, const Lane *weights_here, const Lane *levels,
                                     Lane &product, Lane &square) {
        for (int i = 0; i < 16; ++i) {
            const Lane weighted = weights_here[i] * levels[i];
            product = product + weighted * x[i];
            square = square + weighted * levels[i];
        }
    }

    template <class Lane>
    static void pack(const Lane *x, const Lane *weights_here, const Lane *scales,
                     IntOf<Lane> moved, uint8_t *bytes) {
        using Int = IntOf<Lane>;
        constexpr int block_bytes = Type::block_bytes, count = block_bytes / 4;
        auto zeros = no_lane<Lane>();
        const Lane searched = Type::block_scale(scales, weights_here, zeros);
        const Lane inverse = Type::refits ? 1.0f / searched : inverse_or_zero(searched);
        Int codes[64], words[count] = {};
        Lane product{}, square{};
        for (int group = 0; group < 16; ++group) {
            const Lane *own = x + 16 * group, *own_weights = weights_here + 16 * group;
            const Int scale = Type::group_scale(inverse * scales[group], scales[group]);
            const Lane own_scale = searched * to_floats(scale);
            const auto is_zero = Type::refits ? equal(own_scale, Lane{}) : no_lane<Lane>();
            const Lane whole = select(is_zero, Lane{}, to_floats(scale));
            auto is_moved = equal(moved >> group & 1, Int{} + 1);
            Lane levels[16];
            Int *four = codes + 4 * group;
            choose_moved_levels<Type>(own, own_weights, own_scale, is_moved, four, levels);
            for (int i = 0; i < 4; ++i) four[i] = select(is_zero, Int{}, four[i]);
            for (Lane &level : levels) level = level * whole;
            sum_up(own, own_weights, levels, product, square);
            Type::put_scale(group, scale, words);
        }
        const Lane fitted = select(less(Lane{}, square), product / square, searched);
        const Int d = (Int)half_of_float(select(zeros, Lane{}, Type::growth * fitted));
        constexpr bool is_odd = block_bytes % 4 == 2;  // the half stands before the words
        words[0] |= is_odd ? moved : d | moved << 16;
        put_fields<Type::low_bits, Type::apart>(codes, 0, words + Type::header);
        if constexpr (Type::high_bits > 0) {
            constexpr int first = Type::header + 8 * Type::low_bits;
            put_fields<Type::high_bits, 32>(codes, Type::low_bits, words + first);
        }
        for (Int &word : words) word = select(zeros, Int{}, word);
        store_words<count, block_bytes>(words, bytes + block_bytes % 4);
        if (is_odd) scatter_halves<block_bytes>(d, bytes);
    }
};

struct IQ4_K : MovedGroups<IQ4_K> {
    static constexpr uint32_t id = 139, block_bytes = 144;
    static constexpr const char *name = "IQ4_K";
    static constexpr const auto &plain = iq4_table, &moved = iq4_moved_table;
    static constexpr int tries = 7, apart = 16;
    static constexpr bool refits = false;
};

struct IQ5_K : MovedGroups<IQ5_K> {
    static constexpr uint32_t id = 140, block_bytes = 176;
    static constexpr const char *name = "IQ5_K";
    static constexpr const auto &plain = iq5_table, &moved = iq5_moved_table;
    static constexpr int high_bits = 1;
};

struct IQ6_K : MovedGroups<IQ6_K> {
    static constexpr uint32_t id = 141, block_bytes = 212;
    static constexpr const char *name = "IQ6_K";
    static constexpr const auto &plain = iq6_table, &moved = iq6_moved_table;
    static constexpr int header = 5, high_bits = 2;
    static constexpr int lowest_scale = -127, top_scale = 127, scale_bits = 8, divisor = 127;
};

struct IQ2_K : MovedGroups<IQ2_K> {
    static constexpr uint32_t id = 137, block_bytes = 76;
    static constexpr const char *name = "IQ2_K";
    static constexpr const auto &plain = iq2_table, &moved = iq2_moved_table;
    static constexpr int header = 3, low_bits = 2;
    static constexpr int lowest_scale = -8, top_scale = 7, scale_bits = 4;
    static constexpr bool casts = false;
    static constexpr float square_share = 1.5f, growth = 1.03f;

    template <class Lane>
    static BestScale<Lane> fit(const Lane *x, const Lane *weights_here) {
        return LevelSplits<16, 0, Lane>(x, weights_here).run(extreme_of<16>(x));
    }
    template <class Lane>
    static Lane block_scale(const Lane *scales, const Lane *weights_here, MaskOf<Lane> &zeros) {
        Lane sums[16] = {};
        for (int i = 0; i < 256; ++i) sums[i / 16] = sums[i / 16] + weights_here[i];
        const Lane scale = fit_symmetric<16, 8>(scales, sums, 1e-45f).scale;
        zeros = equal(scale, Lane{});
        return scale;
    }
};

// Its scales are odd; their signs are separate.
struct IQ3_K : MovedGroups<IQ3_K> {
    static constexpr uint32_t id = 138, block_bytes = 110;
    static constexpr const char *name = "IQ3_K";
    static constexpr const auto &plain = iq3_table, &moved = iq3_moved_table;
    static constexpr int tries = 3, step = 2, header = 3, low_bits = 2, high_bits = 1;
    static constexpr bool keeps_usual = true;
    static constexpr float square_share = 1.5f, growth = 1.01f;

    template <class Lane>
    static KERNEL_INLINE Lane block_scale(const Lane *scales, const Lane *, MaskOf<Lane> &zeros) {
        Lane largest{};
        for (int i = 0; i < 16; ++i) {  // a zero does not replace a NaN, other numbers do
            const Lane size = absolute(scales[i]);
            largest = select(equal(size, Lane{}), largest, maximum(largest, size));
        }
        zeros = equal(largest, Lane{});
        return largest / 31.0f;
    }
    template <class Lane>
    static KERNEL_INLINE IntOf<Lane> group_scale(Lane requested, Lane scale) {
        const auto size = nearest_within(0.5f * (absolute(requested) - 1.0f), 0, 15) * 2 + 1;
        return select(less(scale, Lane{}), -size, size);
    }
    template <class Int>
    static KERNEL_INLINE void put_scale(int group, Int scale, Int *words) {
        const Int sign = shift_right(scale, 31), size = (scale ^ -sign) + sign;
        words[0] |= sign << (16 + group);
        words[1 + group / 8] |= size >> 1 << 4 * (group % 8);
    }
};

}  // namespace
