// The i-quants on grids: points and signs stay ggml's; the scale of a block and those of its groups
// are chosen together, without ggml's fixed factors. The search costs little beside the encoder,
// so one scalar source serves every instruction set.
#pragma once
#include "../types/iq1_m.hpp"
#include "../types/iq1_s.hpp"
#include "../types/iq2_s.hpp"
#include "../types/iq2_xs.hpp"
#include "../types/iq2_xxs.hpp"
#include "../types/iq3_s.hpp"
#include "../types/iq3_xxs.hpp"
#include "fit_scale.hpp"
#include "scale_correction.hpp"

namespace {

// Where a block keeps the scale of a group: bits in a little-endian word.
struct FieldPlace {
    int offset, shift;
};

// `Count` fields of `Bits` bits; the numbers of a group are proportional to 2 * field + 1.
template <class OfType, int Count, int Bits, class Word, FieldPlace (*Place)(int)>
struct GridScales {
    using Type = OfType;
    static constexpr int count = Count, top = (1 << Bits) - 1;

    static int get(const uint8_t *block, int group) {
        const FieldPlace place = Place(group);
        return static_cast<int>(read<Word>(block + place.offset) >> place.shift & top);
    }
    static void set(uint8_t *block, int group, int value) {
        const FieldPlace place = Place(group);
        const Word mask = static_cast<Word>(Word{top} << place.shift);
        const Word rest = static_cast<Word>(read<Word>(block + place.offset) & ~mask);
        write(block + place.offset,
              static_cast<Word>(rest | static_cast<Word>(value) << place.shift));
    }
    static uint16_t half(const uint8_t *block) { return read<uint16_t>(block); }
    static void set_half(uint8_t *block, uint16_t half) { write(block, half); }
};

inline FieldPlace place_iq2_xxs(int group) { return {6 + 8 * group, 28}; }
inline FieldPlace place_iq2_xs(int group) { return {66 + group / 2, group % 2 * 4}; }
inline FieldPlace place_iq2_s(int group) { return {74 + group / 2, group % 2 * 4}; }
inline FieldPlace place_iq3_xxs(int group) { return {66 + 4 * group, 28}; }
inline FieldPlace place_iq3_s(int group) { return {106 + group / 2, group % 2 * 4}; }
inline FieldPlace place_iq1_s(int group) { return {34 + 2 * group, 12}; }
inline FieldPlace place_iq1_m(int group) { return {48 + group / 4 * 2, group % 4 * 3}; }

using ScalesIQ2_XXS = GridScales<IQ2_XXS, 8, 4, uint32_t, place_iq2_xxs>;
using ScalesIQ2_XS = GridScales<IQ2_XS, 16, 4, uint8_t, place_iq2_xs>;
using ScalesIQ2_S = GridScales<IQ2_S, 16, 4, uint8_t, place_iq2_s>;
using ScalesIQ3_XXS = GridScales<IQ3_XXS, 8, 4, uint32_t, place_iq3_xxs>;
using ScalesIQ3_S = GridScales<IQ3_S, 8, 4, uint8_t, place_iq3_s>;
using ScalesIQ1_S = GridScales<IQ1_S, 8, 3, uint16_t, place_iq1_s>;

// The upper four bits of each word of scales make the half.
struct ScalesIQ1_M : GridScales<IQ1_M, 16, 3, uint16_t, place_iq1_m> {
    static uint16_t half(const uint8_t *block) { return view<IQ1_M::Block>(block).d(); }
    static void set_half(uint8_t *block, uint16_t half) {
        for (int i = 0; i < 4; ++i) {
            uint8_t *address = block + 48 + 2 * i;
            const int rest = read<uint16_t>(address) & 0x0FFF;
            write(address, static_cast<uint16_t>(rest | (half >> 4 * i & 15) << 12));
        }
    }
};

// What the scales of a block are fitted to: the numbers of a block whose scales are all one, and
// the sums of each group over weight * number * element, and * number * number.
template <class Scales>
class GridScalesFit {
    using Type = typename Scales::Type;
    using Rule = typename Type::Rule;
    static constexpr int count = Scales::count, size = 256 / count;

public:
    GridScalesFit(const float *x, const float *importance, const uint8_t *block) : x_(x) {
        uint8_t ones[Type::block_bytes];
        memcpy(ones, block, sizeof ones);
        Scales::set_half(ones, 0x3C00);
        for (int i = 0; i < count; ++i) Scales::set(ones, i, 0);
        Type::template decode_lanes<Cached>(ones, numbers_);
        weigh_on_grid<Rule>(x, importance, mean_square_of(x, Rule::spread), 256, weights_);
        for (int i = 0; i < count; ++i) {
            products_[i] = squares_[i] = 0.0f;
            for (int j = i * size; j < (i + 1) * size; ++j) {
                const float weighted = weights_[j] * numbers_[j];
                products_[i] += weighted * x[j];
                squares_[i] += weighted * numbers_[j];
            }
        }
    }

    // Fits the shared scale and those of the groups to each other in turns, from several starts;
    // then corrects the shared one if there is `importance`.
    void run(int starts, int turns, const float *importance, uint8_t *block) {
        half_ = Scales::half(block);
        for (int i = 0; i < count; ++i) fields_[i] = Scales::get(block, i);
        const float before = error_of(half_, fields_);
        float least = before;
        const float d = float_of_half(half_);
        for (int i = 0; i < starts; ++i) {
            float now = d * (1.0f + 0.3f * static_cast<float>(i - starts / 2) / starts);
            for (int turn = 0; turn < turns; ++turn) now = attempt(now, least);
        }
        if (importance) correct_scale(importance, before * clearly, least);
        if (!(least < before) || !is_finite_error(least)) return;
        Scales::set_half(block, half_);
        for (int i = 0; i < count; ++i) Scales::set(block, i, fields_[i]);
    }

private:
    float error_of(uint16_t half, const int *fields) const {
        float decoded[256];
        decode(half, fields, decoded);
        return error_between<256>(x_, decoded, weights_);
    }

    void decode(uint16_t half, const int *fields, float *decoded) const {
        const float d = float_of_half(half);
        for (int i = 0; i < 256; ++i) {
            decoded[i] = d * static_cast<float>(2 * fields[i / size] + 1) * numbers_[i];
        }
    }

    void correct_scale(const float *importance, float limit, float &least) {
        float decoded[256];
        decode(half_, fields_, decoded);
        const float share = correction_of<256>(x_, decoded, importance, weights_, limit);
        const uint16_t half = half_of_float(float_of_half(half_) * (1.0f + share));
        const float error = error_of(half, fields_);
        if (!(error < limit) || !is_worth_it(share)) return;
        half_ = half;
        least = error;
    }

    // Chooses each group's scale under a shared one; returns the shared one that fits those.
    float attempt(float requested, float &least) {
        const uint16_t half = half_of_float(requested);
        const float d = float_of_half(half), inverse = inverse_or_zero(d);
        int fields[count];
        float products = 0.0f, squares = 0.0f;
        for (int i = 0; i < count; ++i) {
            const float best = squares_[i] > 0.0f ? products_[i] / squares_[i] : 0.0f;
            const float field = (best * inverse - 1.0f) * 0.5f;
            const float inside = maximum(minimum(field, static_cast<float>(Scales::top)), 0.0f);
            fields[i] = nearest_int(inside);
            const float level = static_cast<float>(2 * fields[i] + 1);
            products += level * products_[i];
            squares += level * level * squares_[i];
        }
        const float error = error_of(half, fields);
        if (error < least * clearly) {
            least = error;
            half_ = half;
            memcpy(fields_, fields, sizeof fields);
        }
        return squares > 0.0f ? products / squares : d;
    }

    const float *x_;
    float numbers_[256], weights_[256], products_[count], squares_[count];
    uint16_t half_ = 0;
    int fields_[count];
};

template <class Scales>
struct RefinesGridScales {
    using Type = typename Scales::Type;
    static constexpr bool scalar = true;
    static constexpr Effort efforts[] = {{0, 2, 1, 0}, {1, 3, 1, 0}};

    template <class Importance>
    static void refine(const float *x, [[maybe_unused]] const Importance &importance,
                       const Effort &effort, uint8_t *bytes) {
        const float *weights = nullptr;
        if constexpr (is_weighted<Importance>) weights = importance.weights;
        GridScalesFit<Scales> search(x, weights, bytes);
        search.run(effort.starts ? 13 : 5, effort.turns, weights, bytes);
    }
};

}  // namespace
