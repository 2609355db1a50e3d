// Q4_1 and Q5_1: a block is one group with a scale and a lowest value, both halves.
#pragma once
#include "../types/q4_1.hpp"
#include "../types/q5_1.hpp"
#include "fit_line.hpp"
#include "single_scale.hpp"

namespace {

// The levels of a group under a line.
template <int Top, int Size, class Lane>
KERNEL_INLINE void line_codes(const Lane *x, Line<Lane> line, IntOf<Lane> *codes) {
    const Lane inverse = inverse_or_zero(line.scale);
    for (int i = 0; i < Size; ++i) {
        const Lane scaled = (x[i] - line.lowest) * inverse;
        codes[i] = nearest_int(maximum(minimum(scaled, broadcast<Lane>(Top)), Lane{}));
    }
}

template <class OfType>
struct RefinesSingleAffine : WeighsByRow {
    using Type = OfType;
    static constexpr int block_bytes = Type::block_bytes, top = Type::top;
    static constexpr Effort efforts[] = {{4, 1, 0, 0}, {16, 3, 0, 0}};
    // The rule of Q5_1 takes longer than that of Q4_1, in ggml too.
    static constexpr Effort plain_efforts[] = {{0, 1, 0, 0}, {top > 15, top > 15 ? 1 : 2, 0, 0}};

    template <class Lane, class Importance>
    static void refine(const Lane *x, const Importance &importance, const Effort &effort,
                       uint8_t *bytes) {
        using Int = IntOf<Lane>;
        Lane weights[32];
        WeighsByRow::weigh(x, importance, weights);
        Int before[2];
        read_fields<block_bytes, 2, Lane>(bytes, read_line, before);
        LineFit<top, false, 32, Lane> fit(x, weights);
        fit.start_from({float_of_half(before[0]), float_of_half(before[1])}, effort.turns);
        if (effort.starts) {
            fit.try_starts(effort.starts);
            fit.refine(effort.turns);
        }
        const Int scale = half_of_float(fit.best().scale);
        const Int after[2] = {scale, half_of_float(fit.lowest_for(float_of_half(scale)))};
        const Line<Lane> lines[2] = {{float_of_half(before[0]), float_of_half(before[1])},
                                     {float_of_half(after[0]), float_of_half(after[1])}};
        Lane errors[2];
        line_errors<top, false, 32>(x, weights, lines, errors);
        const auto better = less(errors[1], errors[0] * clearly);
        const Int chosen[2] = {select(better, after[0], before[0]),
                               select(better, after[1], before[1])};
        uint8_t candidate[block_bytes * width_of<Lane>];
        Int codes[32];
        line_codes<top, 32, Lane>(x, {float_of_half(chosen[0]), float_of_half(chosen[1])}, codes);
        Type::store_block(chosen[0], chosen[1], codes, candidate);
        const Lane least = select(better, errors[1], errors[0]);
        replace_blocks<block_bytes>(is_finite_error(least), candidate, bytes);
    }

private:
    static void read_line(const uint8_t *bytes, int32_t *fields) {
        const auto &block = view<typename Type::Block>(bytes);
        fields[0] = block.d;
        fields[1] = block.minimum;
    }
};

}  // namespace
