// Q4_0, Q5_0, Q8_0 and IQ4_NL: a block is one group with one scale.
#pragma once
#include "../searches/uneven.hpp"
#include "../types/iq4_nl.hpp"
#include "../types/q4_0.hpp"
#include "../types/q5_0.hpp"
#include "../types/q8_0.hpp"
#include "fit_scale.hpp"
#include "lane_blocks.hpp"

namespace {

// Weights of Q4_0 to Q5_1; without importance, all elements count alike.
struct WeighsByRow {
    static constexpr bool squares_alone = false;

    template <class Lane, class Importance>
    static KERNEL_INLINE void weigh(const Lane *x, const Importance &importance, Lane *weights) {
        if constexpr (is_weighted<Importance>) {
            weigh_by_row(x, importance, weights);
        } else {
            for (int i = 0; i < 32; ++i) weights[i] = broadcast<Lane>(1.0f);
        }
    }
};

// Without importance, ggml weights the errors of some types by the squares of the elements. A
// search that minimizes only that makes the error of the others larger, and predictions worse. So
// such a search adds four mean squares to each weight, and keeps only what ggml's rule finds better
// too.
template <int Size, class Lane>
KERNEL_INLINE void add_mean_square(const Lane *x, Lane *weights) {
    const Lane share = 2.0f * twice_mean_square<Size>(x);
    for (int i = 0; i < Size; ++i) weights[i] = weights[i] + share;
}

// The levels of a block under its scale, as unsigned codes.
template <class Levels, int Offset, int Size, class Lane>
KERNEL_INLINE void codes_of(const Lane *x, Lane scale, IntOf<Lane> *codes) {
    const Lane inverse = inverse_or_zero(scale);
    for (int i = 0; i < Size; i += 4) {
        Lane levels[4];
        four_levels<Levels>(x + i, inverse, levels);
        UNROLL
        for (int j = 0; j < 4; ++j) codes[i + j] = nearest_int(levels[j]) + Offset;
    }
}

template <class OfType, int Starts, int Turns>
struct RefinesAround : WeighsByRow {
    using Type = OfType;
    static constexpr int middle = (Type::top + 1) / 2;
    using Levels = EvenLevels<-middle, middle - 1>;
    static constexpr Effort plain_efforts[] = {{0, 1, 0, 0}, {Starts, Turns, 0, 0}};

    template <class Lane>
    static KERNEL_INLINE void write(const Lane *x, Lane scale, uint8_t *bytes) {
        IntOf<Lane> codes[32];
        codes_of<Levels, middle, 32>(x, scale, codes);
        store_levels<Type>(codes, bytes + 2);
    }
};

using RefinesQ4_0 = RefinesAround<Q4_0, 2, 1>;
using RefinesQ5_0 = RefinesAround<Q5_0, 4, 2>;

struct RefinesIQ4_NL {
    using Type = IQ4_NL;
    using Levels = UnevenLevels;
    static constexpr bool squares_alone = true;  // the weights without importance
    static constexpr Effort plain_efforts[] = {{2, 1, 0, 0}, {16, 3, 0, 0}};

    template <class Lane, class Importance>
    static KERNEL_INLINE void weigh(const Lane *x, const Importance &importance, Lane *weights) {
        weigh_uneven(x, 0, importance, twice_mean_square<32>(x), weights);
    }

    template <class Lane>
    static KERNEL_INLINE void write(const Lane *x, Lane scale, uint8_t *bytes) {
        IntOf<Lane> words[4];
        write_uneven(x, scale, words);
        store_words<4, Type::block_bytes>(words, bytes + 2);
    }

    // Four words with the codes of 32 elements, those 16 apart in one byte.
    template <class Lane>
    static KERNEL_INLINE void write_uneven(const Lane *x, Lane scale, IntOf<Lane> *words) {
        const Lane inverse = inverse_or_zero(scale);
        for (int i = 0; i < 4; ++i) {
            Lane low[4], high[4];
            UNROLL
            for (int j = 0; j < 4; ++j) {
                low[j] = inverse * x[4 * i + j];
                high[j] = inverse * x[16 + 4 * i + j];
            }
            words[i] = Levels::codes(low).word() | Levels::codes(high).word() << 4;
        }
    }
};

// Gives a block the best scale that the search finds, and the levels nearest under it. A block
// without finite error stays ggml's.
template <class Rule>
struct RefinesSingleScale : Rule {
    using Type = typename Rule::Type;
    static constexpr Effort efforts[] = {{2, 1, 0, 0}, {16, 3, 0, 0}};
    static constexpr const Effort (&plain_efforts)[2] = Rule::plain_efforts;
    static constexpr int block_size = Type::block_size, block_bytes = Type::block_bytes;

    template <class Lane, class Importance>
    static void refine(const Lane *x, const Importance &importance, const Effort &effort,
                       uint8_t *bytes) {
        using Int = IntOf<Lane>;
        using Levels = typename Rule::Levels;
        Lane weights[block_size];
        Rule::weigh(x, importance, weights);
        constexpr bool is_mixed = Rule::squares_alone && !is_weighted<Importance>;
        if constexpr (is_mixed) add_mean_square<block_size>(x, weights);
        Int halves[2];
        read_fields<block_bytes, 1, Lane>(
            bytes, [](const uint8_t *block, int32_t *own) { own[0] = read<uint16_t>(block); },
            halves);
        ScaleFit<Levels, block_size, Lane> fit(x, weights);
        fit.start_from(float_of_half(halves[0]), effort.turns);
        if (effort.starts) {
            fit.try_starts(effort.starts);
            fit.refine(effort.turns);
        }
        halves[1] = half_of_float(fit.best().scale());
        const Lane scales[2] = {float_of_half(halves[0]), float_of_half(halves[1])};
        Lane errors[2];
        errors_of<Levels, block_size>(x, weights, scales, errors);
        auto better = less(errors[1], errors[0] * clearly);
        if constexpr (is_mixed) {
            Lane squares[block_size], losses[2];
            Rule::weigh(x, importance, squares);
            errors_of<Levels, block_size>(x, squares, scales, losses);
            better = and_(better, less(losses[1], losses[0] * clearly));
        }
        const Lane scale = select(better, scales[1], scales[0]);
        uint8_t candidate[block_bytes * width_of<Lane>];
        scatter_halves<block_bytes>(select(better, halves[1], halves[0]), candidate);
        Rule::write(x, scale, candidate);
        const Lane least = select(better, errors[1], errors[0]);
        replace_blocks<block_bytes>(is_finite_error(least), candidate, bytes);
    }
};

}  // namespace
