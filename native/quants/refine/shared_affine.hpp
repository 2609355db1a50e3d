// Q2_K, Q4_K and Q5_K: groups have whole scales and minima, and share the scales of both.
#pragma once
#include "../types/q2_k.hpp"
#include "../types/q4_k.hpp"
#include "../types/q5_k.hpp"
#include "single_affine.hpp"

namespace {

template <class OfType, int Top>
struct RefinesGroupsOf32 {
    using Type = OfType;
    static constexpr int group_size = 32, top = Top;
    using Scales = EvenLevels<0, 63>;

    template <class Importance>
    static constexpr bool absolute = false;

    template <class Lane, class Importance>
    static KERNEL_INLINE void weigh(const Lane *x, const Importance &importance, Lane *weights) {
        weigh_groups<WeighsGroup, 32>(x, importance, weights);
    }

    static void read_scales(const uint8_t *bytes, int32_t *fields) {
        const auto &block = view<typename Type::Block>(bytes);
        fields[0] = block.d;
        fields[1] = block.minimum;
        for (int i = 0; i < 8; ++i) {
            const ScaleMinimum own = scale_minimum(block.scales, i);
            fields[2 + i] = own.scale;
            fields[10 + i] = own.minimum;
        }
    }

    template <class Lane, class LevelsOf>
    static KERNEL_INLINE void write(LevelsOf levels_of, GroupScales<Lane, 8> &scales,
                                    uint8_t *bytes) {
        pack_superblock<Top, Type::block_bytes, Lane>(levels_of, scales, bytes);
    }
};

using RefinesQ4_K = RefinesGroupsOf32<Q4_K, 15>;
using RefinesQ5_K = RefinesGroupsOf32<Q5_K, 31>;

struct RefinesQ2_K {
    using Type = Q2_K;
    static constexpr int group_size = 16, top = 3;
    using Scales = EvenLevels<0, 15>;

    // ggml's plain rule adds distances.
    template <class Importance>
    static constexpr bool absolute = !is_weighted<Importance>;

    template <class Lane, class Importance>
    static KERNEL_INLINE void weigh(const Lane *x, const Importance &importance, Lane *weights) {
        weigh_groups<WeighsSize, 16>(x, importance, weights);
    }

    static void read_scales(const uint8_t *bytes, int32_t *fields) {
        const auto &block = view<Type::Block>(bytes);
        fields[0] = block.d;
        fields[1] = block.minimum;
        for (int i = 0; i < 16; ++i) {
            fields[2 + i] = block.scales[i] & 15;
            fields[18 + i] = block.scales[i] >> 4;
        }
    }

    template <class Lane, class LevelsOf>
    static KERNEL_INLINE void write(LevelsOf levels_of, const GroupScales<Lane, 16> &scales,
                                    uint8_t *bytes) {
        IntOf<Lane> pairs[16];
        for (int i = 0; i < 16; ++i) pairs[i] = scales.scales[i] | scales.minima[i] << 4;
        Type::pack<Lane>(levels_of, pairs, scales.d | scales.minimum << 16, bytes);
    }
};

// Chooses both shared scales and the scales and minima of all groups together: the shared ones by
// the lines that fit each group best, then neighbours of each group's scale, with the minimum that
// suits it; then least squares over the block refit the shared ones.
template <class Rule, bool Absolute, class Lane>
class SharedAffineSearch {
    using Int = IntOf<Lane>;
    using Scales = typename Rule::Scales;
    static constexpr int size = Rule::group_size, count = 256 / size;
    using Fit = LineFit<Rule::top, true, size, Lane>;

public:
    KERNEL_INLINE SharedAffineSearch(const Lane *x, const Lane *weights, const Int *fields)
        : x_(x), weights_(weights) {
        best_.d = fields[0];
        best_.minimum = fields[1];
        for (int i = 0; i < count; ++i) {
            best_.scales[i] = fields[2 + i];
            best_.minima[i] = fields[2 + count + i];
            const Line<Lane> lines[1] = {line_of(best_, i)};
            Lane errors[1];
            line_errors<Rule::top, Absolute, size>(x_ + i * size, weights_ + i * size, lines,
                                                   errors);
            error_ = error_ + errors[0];
        }
    }

    KERNEL_INLINE void run(const Effort &effort) {
        fit_groups(effort);
        const int starts = effort.rounds == 1 ? 8 : 24;
        Line<Lane> shared{shared_number(wanted_, curvature_, starts), Lane{}};
        Lane minima[count];
        for (int i = 0; i < count; ++i) {
            minima[i] = minimum_for(i, shared.scale * rounded(wanted_[i], shared.scale));
        }
        shared.lowest = shared_number(minima, sum_of_weights_, starts);
#pragma GCC unroll 1
        for (int round = 0; round < effort.rounds; ++round) {
            shared = attempt(shared, effort.reach, round + 1 < effort.rounds);
        }
    }

    static KERNEL_INLINE Line<Lane> line_of(const GroupScales<Lane, count> &scales, int i) {
        return {float_of_half(scales.d) * to_floats(scales.scales[i]),
                -(float_of_half(scales.minimum) * to_floats(scales.minima[i]))};
    }

    const GroupScales<Lane, count> &best() const { return best_; }
    Lane error() const { return error_; }

private:
    KERNEL_INLINE void fit_groups(const Effort &effort) {
#pragma GCC unroll 1
        for (int i = 0; i < count; ++i) {
            Fit fit(x_ + i * size, weights_ + i * size);
            fit.start_from(line_of(best_, i), effort.turns);
            if (effort.starts) {
                fit.try_starts(effort.starts);
                fit.refine(effort.turns);
            }
            const LineSums<Lane> &sums = fit.sums();
            const Lane weight = fit.sum_of_weights();
            const auto weighted = less(Lane{}, weight);
            wanted_[i] = fit.best().scale;
            levels_[i] = sums.levels;
            sum_of_x_[i] = fit.sum_of_x();
            sum_of_weights_[i] = weight;
            curvature_[i] =
                select(weighted, sums.squares - sums.levels * (sums.levels / weight), Lane{});
        }
    }

    // The minimum, as a positive number, that suits a group's scale.
    KERNEL_INLINE Lane minimum_for(int i, Lane scale) const {
        const Lane unit_of_scale = (scale * levels_[i] - sum_of_x_[i]) / sum_of_weights_[i];
        return select(less(Lane{}, sum_of_weights_[i]), maximum(unit_of_scale, Lane{}), Lane{});
    }

    static KERNEL_INLINE Lane rounded(Lane value, Lane unit) {
        return Scales::one(value * inverse_or_zero(unit));
    }

    // The unit of which numbers are multiples with the least weighted error.
    static KERNEL_INLINE Lane shared_number(const Lane *numbers, const Lane *weights, int starts) {
        Lane largest{};
        for (int i = 0; i < count; ++i) largest = maximum(numbers[i], largest);
        SharedUnit<Scales, count, Lane> unit_of_scale{numbers, weights};
#pragma GCC unroll 1
        for (int i = 0; i < starts; ++i) {
            const float share = 1.01f - 0.2f * static_cast<float>(i) / static_cast<float>(starts);
            unit_of_scale.attempt(largest / broadcast<Lane>(Scales::high * share));
        }
        return unit_of_scale.best;
    }

    // Sums of the least squares for both shared scales.
    struct Normal {
        Lane aa{}, ab{}, bb{}, ax{}, bx{};
    };

    // Tries shared scales with the best neighbours of each group's; returns their refit if `again`.
    KERNEL_INLINE Line<Lane> attempt(Line<Lane> requested, int reach, bool again) {
        GroupScales<Lane, count> now;
        now.d = half_of_float(requested.scale);
        now.minimum = half_of_float(requested.lowest);
        const Line<Lane> shared{float_of_half(now.d), float_of_half(now.minimum)};
        Lane total{};
        Normal normal;
#pragma GCC unroll 1
        for (int i = 0; i < count; ++i) {
            Lane scale{}, lowest{}, least = broadcast<Lane>(largest_float);
            try_neighbours(i, shared, reach, scale, lowest, least);
            total = total + least;
            now.scales[i] = nearest_int(scale);
            now.minima[i] = nearest_int(lowest);
            if (again) add_to(normal, i, shared, scale, lowest);
        }
        const auto better = less(total, error_ * clearly);
        error_ = select(better, total, error_);
        best_.d = select(better, now.d, best_.d);
        best_.minimum = select(better, now.minimum, best_.minimum);
        for (int i = 0; i < count; ++i) {
            best_.scales[i] = select(better, now.scales[i], best_.scales[i]);
            best_.minima[i] = select(better, now.minima[i], best_.minima[i]);
        }
        return solve(normal, shared);
    }

    KERNEL_INLINE void try_neighbours(int i, Line<Lane> shared, int reach, Lane &scale,
                                      Lane &lowest, Lane &least) const {
        const Lane middle = rounded(wanted_[i], shared.scale);
        const int sideways = reach > 1 ? 1 : 0;
#pragma GCC unroll 1
        for (int aside = -sideways; aside <= sideways; ++aside) {
#pragma GCC unroll 1
            for (int step = -reach; step <= reach; step += 3) {
                Lane scales[3], minima[3], errors[3];
                Line<Lane> lines[3];
                UNROLL
                for (int k = 0; k < 3; ++k) {
                    scales[k] = Scales::one(middle + static_cast<float>(step + k));
                    const Lane own = shared.scale * scales[k];
                    const Lane suited = rounded(minimum_for(i, own), shared.lowest);
                    minima[k] = Scales::one(suited + static_cast<float>(aside));
                    lines[k] = {own, -(shared.lowest * minima[k])};
                }
                line_errors<Rule::top, Absolute, size>(x_ + i * size, weights_ + i * size, lines,
                                                       errors);
                UNROLL
                for (int k = 0; k < 3; ++k) {
                    const auto better = less(errors[k], least);
                    least = select(better, errors[k], least);
                    scale = select(better, scales[k], scale);
                    lowest = select(better, minima[k], lowest);
                }
            }
        }
    }

    KERNEL_INLINE void add_to(Normal &normal, int i, Line<Lane> shared, Lane scale,
                              Lane lowest) const {
        const Line<Lane> lines[1] = {{shared.scale * scale, -(shared.lowest * lowest)}};
        LineSums<Lane> sums[1];
        line_sums<Rule::top, size>(x_ + i * size, weights_ + i * size, lines, sums);
        normal.aa = normal.aa + scale * (scale * sums[0].squares);
        normal.ab = normal.ab + scale * (lowest * sums[0].levels);
        normal.bb = normal.bb + lowest * (lowest * sum_of_weights_[i]);
        normal.ax = normal.ax + scale * sums[0].products;
        normal.bx = normal.bx + lowest * sum_of_x_[i];
    }

    // x is about d * a - m * b.
    static KERNEL_INLINE Line<Lane> solve(const Normal &sums, Line<Lane> before) {
        const Lane determinant = sums.aa * sums.bb - sums.ab * sums.ab;
        const Lane d = (sums.ax * sums.bb - sums.bx * sums.ab) / determinant;
        const Lane m = (sums.ax * sums.ab - sums.bx * sums.aa) / determinant;
        const auto usable = and_(and_(less(Lane{}, determinant), less(Lane{}, d)), less(Lane{}, m));
        return {select(usable, d, before.scale), select(usable, m, before.lowest)};
    }

    const Lane *x_, *weights_;
    GroupScales<Lane, count> best_;
    Lane error_{};
    Lane wanted_[count], curvature_[count], levels_[count], sum_of_x_[count];
    Lane sum_of_weights_[count];
};

template <class Rule>
struct RefinesSharedAffine : Rule {
    using Type = typename Rule::Type;
    static constexpr int block_bytes = Type::block_bytes;
    static constexpr Effort efforts[] = {{4, 1, 1, 1}, {16, 3, 3, 4}};

    template <class Lane, class Importance>
    static void refine(const Lane *x, const Importance &importance, const Effort &effort,
                       uint8_t *bytes) {
        constexpr int size = Rule::group_size, count = 256 / size;
        using Search = SharedAffineSearch<Rule, Rule::template absolute<Importance>, Lane>;
        Lane weights[256];
        Rule::weigh(x, importance, weights);
        IntOf<Lane> fields[2 + 2 * count];
        read_fields<block_bytes, 2 + 2 * count, Lane>(bytes, Rule::read_scales, fields);
        Search search(x, weights, fields);
        search.run(effort);
        GroupScales<Lane, count> best = search.best();
        uint8_t candidate[block_bytes * width_of<Lane>];
        const auto levels_of = [&](int group, IntOf<Lane> *levels) {
            line_codes<Rule::top, size>(x + size * group, Search::line_of(search.best(), group),
                                        levels);
        };
        Rule::write(levels_of, best, candidate);
        replace_blocks<block_bytes>(is_finite_error(search.error()), candidate, bytes);
    }
};

}  // namespace
