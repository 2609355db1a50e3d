// Q3_K, Q6_K and IQ4_XS: groups without a minimum have whole scales, and share the scale of those.
#pragma once
#include "../types/iq4_xs.hpp"
#include "../types/q3_k.hpp"
#include "../types/q6_k.hpp"
#include "single_scale.hpp"

namespace {

// Without importance, an element's square is its weight.
struct WeighsSquare {
    static constexpr float square_share = 2.0f;

    template <class Lane>
    static KERNEL_INLINE void weigh(const Lane *x, Lane *weights) {
        for (int i = 0; i < 16; ++i) weights[i] = x[i] * x[i];
    }
};

struct RefinesQ3_K {
    using Type = Q3_K;
    using Levels = EvenLevels<-4, 3>;
    using Scales = EvenLevels<-32, 31>;
    static constexpr int group_size = 16;
    static constexpr Effort better = {6, 2, 2, 2};  // less finds nothing that predictions show

    template <class Lane, class Importance>
    static KERNEL_INLINE void weigh(const Lane *x, const Importance &importance, Lane *weights) {
        weigh_groups<WeighsSquare, 16>(x, importance, weights);
    }

    static void read_scales(const uint8_t *bytes, int32_t *fields) {
        const auto &block = view<Type::Block>(bytes);
        fields[0] = block.d;
        for (int i = 0; i < 16; ++i) fields[1 + i] = Type::scale_of(block, i);
    }

    template <class Lane>
    static KERNEL_INLINE void write(const Lane *x, IntOf<Lane> half, const IntOf<Lane> *scales,
                                    uint8_t *bytes) {
        IntOf<Lane> stored[16];
        for (int i = 0; i < 16; ++i) stored[i] = scales[i] + 32;
        const auto levels_of = [&](int group, IntOf<Lane> *levels) {
            const Lane scale = float_of_half(half) * to_floats(scales[group]);
            codes_of<Levels, 4, 16>(x + 16 * group, scale, levels);
        };
        Type::template pack<Lane>(levels_of, stored, half, bytes);
    }
};

struct RefinesQ6_K {
    using Type = Q6_K;
    using Levels = EvenLevels<-32, 31>;
    using Scales = EvenLevels<-128, 127>;
    static constexpr int group_size = 16;
    static constexpr Effort better = {2, 1, 1, 1};

    template <class Lane, class Importance>
    static KERNEL_INLINE void weigh(const Lane *x, const Importance &importance, Lane *weights) {
        if constexpr (is_weighted<Importance>) {
            importance.template load<256>(0, weights);
        } else {
            for (int i = 0; i < 256; ++i) weights[i] = x[i] * x[i];
        }
    }

    static void read_scales(const uint8_t *bytes, int32_t *fields) {
        const auto &block = view<Type::Block>(bytes);
        fields[0] = block.d;
        for (int i = 0; i < 16; ++i) fields[1 + i] = block.scales[i];
    }

    template <class Lane>
    static KERNEL_INLINE void write(const Lane *x, IntOf<Lane> half, const IntOf<Lane> *scales,
                                    uint8_t *bytes) {
        const auto levels_of = [&](int group, IntOf<Lane> *levels) {
            const Lane scale = float_of_half(half) * to_floats(scales[group]);
            codes_of<Levels, 32, 16>(x + 16 * group, scale, levels);
        };
        Type::template pack<Lane>(levels_of, scales, half, no_lane<Lane>(), bytes);
    }
};

struct RefinesIQ4_XS {
    using Type = IQ4_XS;
    using Levels = UnevenLevels;
    using Scales = EvenLevels<-32, 31>;
    static constexpr int group_size = 32;
    static constexpr Effort better = {2, 1, 1, 1};

    template <class Lane, class Importance>
    static KERNEL_INLINE void weigh(const Lane *x, const Importance &importance, Lane *weights) {
        const Lane block_square = twice_mean_square<256>(x);
        for (int i = 0; i < 256; i += 32) {
            weigh_uneven(x, i, importance, block_square, weights + i);
        }
    }

    static void read_scales(const uint8_t *bytes, int32_t *fields) {
        const auto &block = view<Type::Block>(bytes);
        fields[0] = block.d;
        for (int i = 0; i < 8; ++i) fields[1 + i] = Type::scale_of(block, i);
    }

    template <class Lane>
    static KERNEL_INLINE void write(const Lane *x, IntOf<Lane> half, const IntOf<Lane> *scales,
                                    uint8_t *bytes) {
        IntOf<Lane> words[34] = {half};
        for (int group = 0; group < 8; ++group) {
            const Lane scale = float_of_half(half) * to_floats(scales[group]);
            Type::add_scale(scales[group], group, words);
            RefinesIQ4_NL::write_uneven(x + 32 * group, scale, words + 2 + 4 * group);
        }
        store_words<34, Type::block_bytes>(words, bytes);
    }
};

// Chooses the scale of the groups' scales and all of these together. A group's error grows with
// the square of the distance from the scale that fits it best, so the shared scale is found
// without the elements; then each group tries the neighbours of its scale.
template <class Rule, class Lane>
class SharedScaleSearch {
    using Int = IntOf<Lane>;
    using Levels = typename Rule::Levels;
    using Scales = typename Rule::Scales;
    static constexpr int size = Rule::group_size, count = 256 / size;

public:
    KERNEL_INLINE SharedScaleSearch(const Lane *x, const Lane *weights, const Int *fields)
        : x_(x), weights_(weights), half_(fields[0]) {
        const Lane d = float_of_half(half_);
        for (int i = 0; i < count; ++i) {
            scales_[i] = fields[1 + i];
            const Lane scales[1] = {d * to_floats(scales_[i])};
            Lane errors[1];
            errors_of<Levels, size>(x_ + i * size, weights_ + i * size, scales, errors);
            error_ = error_ + errors[0];
            wanted_[i] = scales[0];
        }
    }

    // Goes back to ggml's scales where others lose no less under `weights`.
    KERNEL_INLINE void keep_better_under(const Lane *weights, const Int *fields) {
        Lane before{}, after{};
        for (int i = 0; i < count; ++i) {
            const Lane scales[2] = {float_of_half(fields[0]) * to_floats(fields[1 + i]),
                                    float_of_half(half_) * to_floats(scales_[i])};
            Lane errors[2];
            errors_of<Levels, size>(x_ + i * size, weights + i * size, scales, errors);
            before = before + errors[0];
            after = after + errors[1];
        }
        const auto better = less(after, before * clearly);
        half_ = select(better, half_, fields[0]);
        for (int i = 0; i < count; ++i) scales_[i] = select(better, scales_[i], fields[1 + i]);
    }

    KERNEL_INLINE void run(const Effort &effort) {
        fit_groups(effort);
        const bool is_quick = effort.rounds == 1;
        Lane d = shared_scale(is_quick ? 4 : 24);
#pragma GCC unroll 1
        for (int round = 0; round < effort.rounds; ++round) {
            d = attempt(d, effort.reach, round + 1 < effort.rounds);
        }
    }

    Int half() const { return half_; }
    const Int *scales() const { return scales_; }
    Lane error() const { return error_; }

private:
    KERNEL_INLINE void fit_groups(const Effort &effort) {
#pragma GCC unroll 1
        for (int i = 0; i < count; ++i) {
            ScaleFit<Levels, size, Lane> fit(x_ + i * size, weights_ + i * size);
            fit.start_from(wanted_[i], effort.turns);
            if (effort.starts) {
                fit.try_starts(effort.starts);
                fit.refine(effort.turns);
            }
            wanted_[i] = fit.best().scale();
            curvature_[i] = fit.best().squares;
        }
    }

    // The shared scale under which the groups lose least, refitted to their rounded scales.
    KERNEL_INLINE Lane shared_scale(int starts) const {
        const Lane extreme = extreme_of<count>(wanted_);
        SharedUnit<Scales, count, Lane> unit{wanted_, curvature_};
#pragma GCC unroll 1
        for (int i = 0; i < 2 * starts; ++i) {
            const float end = i % 2 ? Scales::high : Scales::low;
            const float share = 1.01f - 0.2f * static_cast<float>(i / 2) / starts;
            unit.attempt(extreme / broadcast<Lane>(end * share));
        }
        return unit.best;
    }

    // Tries a shared scale with the best neighbours of all scales; returns its refit if `again`.
    KERNEL_INLINE Lane attempt(Lane wanted_d, int reach, bool again) {
        const Int half = half_of_float(wanted_d);
        const Lane d = float_of_half(half), inverse = inverse_or_zero(d);
        Lane total{}, products{}, squares{};
        Int chosen[count];
#pragma GCC unroll 1
        for (int i = 0; i < count; ++i) {
            const Lane middle = Scales::one(wanted_[i] * inverse);
            Lane level = middle, least = broadcast<Lane>(largest_float);
#pragma GCC unroll 1
            for (int step = -reach; step <= reach; step += 3) {
                Lane levels[3], scales[3], errors[3];
                UNROLL
                for (int k = 0; k < 3; ++k) {
                    levels[k] = Scales::one(middle + static_cast<float>(step + k));
                    scales[k] = d * levels[k];
                }
                errors_of<Levels, size>(x_ + i * size, weights_ + i * size, scales, errors);
                UNROLL
                for (int k = 0; k < 3; ++k) {
                    const auto better = less(errors[k], least);
                    least = select(better, errors[k], least);
                    level = select(better, levels[k], level);
                }
            }
            total = total + least;
            chosen[i] = nearest_int(level);
            if (!again) continue;
            const Lane inverses[1] = {inverse_or_zero(d * level)};
            ScaleSums<Lane> sums[1];
            sums_of<Levels, size>(x_ + i * size, weights_ + i * size, inverses, sums);
            products = products + level * sums[0].products;
            squares = squares + level * (level * sums[0].squares);
        }
        const auto better = less(total, error_ * clearly);
        error_ = select(better, total, error_);
        half_ = select(better, half, half_);
        for (int i = 0; i < count; ++i) scales_[i] = select(better, chosen[i], scales_[i]);
        return select(less(Lane{}, squares), products / squares, d);
    }

    const Lane *x_, *weights_;
    Int half_;
    Int scales_[count];
    Lane error_{};
    Lane wanted_[count], curvature_[count];
};

template <class Rule>
struct RefinesSharedScale : Rule {
    using Type = typename Rule::Type;
    static constexpr Effort plain_efforts[] = {{2, 1, 1, 1}, {16, 3, 3, 4}};
    static constexpr Effort efforts[] = {Rule::better, {16, 3, 3, 4}};
    static constexpr int block_size = Type::block_size, block_bytes = Type::block_bytes;

    template <class Lane, class Importance>
    static void refine(const Lane *x, const Importance &importance, const Effort &effort,
                       uint8_t *bytes) {
        constexpr int count = 256 / Rule::group_size;
        Lane weights[256];
        Rule::weigh(x, importance, weights);
        constexpr bool is_mixed = !is_weighted<Importance>;
        if constexpr (is_mixed) add_mean_square<256>(x, weights);
        IntOf<Lane> fields[1 + count];
        read_fields<block_bytes, 1 + count, Lane>(bytes, Rule::read_scales, fields);
        SharedScaleSearch<Rule, Lane> search(x, weights, fields);
        search.run(effort);
        if constexpr (is_mixed) {
            Rule::weigh(x, importance, weights);
            search.keep_better_under(weights, fields);
        }
        uint8_t candidate[block_bytes * width_of<Lane>];
        Rule::write(x, search.half(), search.scales(), candidate);
        replace_blocks<block_bytes>(is_finite_error(search.error()), candidate, bytes);
    }
};

}  // namespace
