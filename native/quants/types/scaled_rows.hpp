// Types of ik_llama.cpp whose rows have a scale, and whose groups of 32 have multiples of it.
#pragma once
#include "../rows.hpp"
#include "../searches/moved_levels.hpp"

namespace {

// Encodes rows in two passes: the first leaves each group's scale, the sum of its weights, and
// which levels it chose, where the second writes the block.
template <class Type, class Lane>
class RowEncoder {
    using Int = IntOf<Lane>;
    static constexpr int header_bytes = Type::block_bytes - 4 * Type::words;

public:
    explicit RowEncoder(const LaneRows<Lane> &rows) : rows_(rows) {
        Lane extreme{}, sums[2] = {};
        for (int64_t block = 0; block < rows.width / 256; ++block) search(block, extreme);
        scale_ = Type::row_scale(rows, extreme, inverse_);
        for (int64_t block = 0; block < rows.width / 256; ++block) pack(block, sums);
        const auto fits = and_(less(Lane{}, sums[1]), not_(equal(scale_, Lane{})));
        const Lane fitted = select(fits, Type::growth * (sums[0] / sums[1]),
                                   Type::growth_unfitted * scale_);
        if constexpr (Type::row_prefix == 2) {
            rows.template put<uint16_t>(0, (Int)half_of_float(fitted));
        } else {
            rows.template put<int32_t>(0, fitted);
        }
    }

private:
    static int64_t offset_of(int64_t block) {
        return Type::row_prefix + block * Type::block_bytes;
    }

    // Loads a block; returns what its weights share.
    Lane load(int64_t block, Lane *x) const {
        rows_.template load<256>(256 * block, x);
        Lane sum{};
        for (int i = 0; i < 256; ++i) sum = sum + x[i] * x[i];
        return sum * Type::share * Type::second_share;
    }

    // Copies a group in the type's order and weighs it.
    void weigh(int64_t block, int group, const Lane *of_block, Lane share, Lane *x,
               Lane *weights) const {
        const Lane *own = of_block + 32 * group;
        Lane importance[32];
        if (rows_.weights) {
            const float *of_group = rows_.weights + 256 * block + 32 * group;
            for (int i = 0; i < 32; ++i) importance[i] = broadcast<Lane>(of_group[i]);
            replace_zero_importance<32>(own, importance);
        }
        for (int i = 0; i < 32; ++i) {
            const int place = Type::place(i);
            x[i] = own[place];
            const Lane square = x[i] * x[i];
            if (rows_.weights) {
                weights[i] = importance[place] * square_root(share + square);
            } else {
                weights[i] = Type::unweighted(x[i], share);
            }
        }
    }

    void search(int64_t block, Lane &extreme) const {
        Lane of_block[256], x[32], weights[32];
        const Lane share = load(block, of_block);
        const int64_t offset = offset_of(block);
        Int moved{};
        for (int group = 0; group < 8; ++group) {
            weigh(block, group, of_block, share, x, weights);
            const Lane largest = extreme_of<32>(of_block + 32 * group);
            const auto best = Type::fit(x, weights, largest);
            const auto empty = less(absolute(largest), broadcast<Lane>(1e-16f));
            const Lane scale = select(empty, Lane{}, best.scale);
            extreme = select(less(absolute(extreme), absolute(scale)), scale, extreme);
            moved = select(and_(best.is_moved, not_(empty)), moved | 1 << group, moved);
            Lane sum{};
            for (int i = 0; i < 32; ++i) sum = sum + weights[i];
            rows_.template put<int32_t>(offset + 4 * group, scale);
            rows_.template put<int32_t>(offset + 32 + 4 * group, sum);
        }
        rows_.template put<uint16_t>(offset + 64, moved);
    }

    // Rows without a scale have no codes either.
    void pack(int64_t block, Lane *sums) const {
        Lane of_block[256], scales[8], x[32], weights[32], levels[32];
        const Lane share = load(block, of_block);
        const int64_t offset = offset_of(block);
        for (int i = 0; i < 8; ++i) scales[i] = rows_.get(offset + 4 * i);
        const Int moved = (Int)bits_of(rows_.get(offset + 64));
        const auto is_used = not_(equal(scale_, Lane{}));
        Int block_words[Type::words + 2] = {}, words[8] = {}, *codes = block_words + 2;
        for (int group = 0; group < 8; ++group) {
            weigh(block, group, of_block, share, x, weights);
            const Int scale = Type::group_scale(inverse_ * scales[group], x, weights, scale_);
            const Lane whole = to_floats(scale), d = scale_ * whole;
            auto is_moved = equal((moved >> group) & 1, Int{} + 1);
            Type::choose(x, weights, d, is_moved, words, levels);
            const auto is_coded = Type::drops_zeros ? not_(equal(d, Lane{})) : is_used;
            for (int i = 0; i < 8; ++i) words[i] = select(is_coded, words[i], Int{});
            const Int stored = select(is_used, scale + Type::scale_offset, Int{});
            const Int bit = select(is_moved, Int{} + 1, Int{});
            Type::put_scale(group, stored, bit, header_bytes > 0 ? block_words : codes);
            Type::put_codes(group, words, codes);
            for (int i = 0; i < 32; ++i) levels[i] = levels[i] * whole;
            Type::sum_up(x, weights, levels, sums);
        }
        if constexpr (header_bytes > 0) {
            rows_.template put<int32_t>(offset, block_words[0]);
            rows_.template put<int32_t>(offset + header_bytes - 4, block_words[1]);
        }
        for (int i = 0; i < Type::words; ++i) {
            rows_.template put<int32_t>(offset + header_bytes + 4 * i, codes[i]);
        }
    }

    const LaneRows<Lane> &rows_;
    Lane scale_, inverse_;
};

// What most of these types have in common; the others have members of the same names.
template <class Type>
struct ScaledRow {
    static constexpr uint32_t block_size = 256;
    static constexpr Weights weights = weights_taken;
    static constexpr int group_size = 32, step = 1;
    static constexpr bool tries_usual = true, keeps_usual = false;  // the scale of the extreme
    static constexpr bool drops_zeros = false, casts = true;
    static constexpr float share = 2.0f / 256, second_share = 1, growth = 1, growth_unfitted = 1;
    template <const auto &Table, class Lane>
    using Codes = UnevenCodes<Table, Lane>;

    template <class Lane>
    static void encode(const LaneRows<Lane> &rows) {
        RowEncoder<Type, Lane>{rows};
    }
    static constexpr int place(int i) { return i; }
    template <class Lane>
    static KERNEL_INLINE Lane unweighted(Lane x, Lane) {
        return x * x;
    }
    template <class Lane>
    static void choose(const Lane *x, const Lane *weights, Lane scale, MaskOf<Lane> &is_moved,
                       IntOf<Lane> *words, Lane *levels) {
        choose_moved_levels<Type>(x, weights, scale, is_moved, words, levels);
    }
    template <class Lane>
    static BestScale<Lane> fit(const Lane *x, const Lane *weights, Lane extreme) {
        return fit_moved_levels<Type>(x, weights, extreme);
    }
    // The scale of the row, and the inverse that gives the scales of groups. `extreme` is the
    // largest of those.
    template <class Lane>
    static Lane row_scale(const LaneRows<Lane> &, Lane extreme, Lane &inverse) {
        const Lane scale = Type::scale_of(extreme);
        inverse = inverse_or_zero(scale);
        return scale;
    }
    template <class Lane>
    static void sum_up(const Lane *x, const Lane *weights, const Lane *levels, Lane *sums) {
        for (int i = 0; i < 32; ++i) {
            const Lane weighted = weights[i] * levels[i];
            sums[0] = sums[0] + weighted * x[i];
            sums[1] = sums[1] + weighted * levels[i];
        }
    }
    // Groups share bytes: each has `bits` of all its codes at the same place, and an upper bit.
    template <class Int>
    static void put_codes(int group, const Int *words, Int *packed) {
        constexpr int bits = Type::bits, mask = bits == 4 ? 0x0F0F0F0F : 0x03030303;
        for (int i = 0; i < 8; ++i) {
            packed[8 * (group * bits / 8) + i] |= (words[i] & mask) << (group * bits % 8);
            if constexpr (Type::words > 8 * bits) {
                packed[8 * bits + i] |= ((words[i] >> bits) & 0x01010101) << group;
            }
        }
    }
};

}  // namespace
