// MXFP4 and NVFP4: a group's scale has 8 bits, so the search tries all scales that may be best.
#pragma once
#include "../types/mxfp4.hpp"
#include "../types/nvfp4.hpp"
#include "fit_scale.hpp"
#include "lane_blocks.hpp"
#include "scale_correction.hpp"

namespace {

// The levels of FP4, doubled: steps of 1 below 4, of 2 below 8, and of 4.
struct Fp4Levels {
    template <class Lane>
    static KERNEL_INLINE void four(const Lane *scaled, Lane *levels) {
        UNROLL
        for (int j = 0; j < 4; ++j) {
            const Lane size = minimum(absolute(scaled[j]), broadcast<Lane>(12.0f));
            const Lane large = select(less(size, broadcast<Lane>(8.0f)),
                                      2.0f * nearest(0.5f * size), 4.0f * nearest(0.25f * size));
            const Lane level = select(less(size, broadcast<Lane>(4.0f)), nearest(size), large);
            levels[j] = select(less(scaled[j], Lane{}), -level, level);
        }
    }
};

// Scales from `reach` steps below ggml's to `reach + above` steps above it. Under a scale half as
// large again the largest element is the level 4 instead of 6: NVFP4 then needs five steps of E4M3.
struct RefinesMXFP4 {
    using Type = MXFP4;
    static constexpr int groups = 1, above = 1, lowest = 2, highest = 254;
    static constexpr float most = largest_float;
    static constexpr Effort efforts[] = {{0, 0, 0, 0}, {0, 0, 0, 1}};
};

struct RefinesNVFP4 {
    using Type = NVFP4;
    static constexpr int groups = 4, above = 5, lowest = 1, highest = 0x7E;
    static constexpr float most = Type::most;
    static constexpr Effort efforts[] = {{0, 0, 0, 1}, {0, 0, 0, 4}};
};

// The weighted error of a group, and with importance what `coherence` adds to it.
template <class Lane>
struct Fp4Loss {
    Lane error, total;

    template <bool IsWeighted, int Size>
    static KERNEL_INLINE Fp4Loss of(const Lane *x, const Lane *weights, Lane scale) {
        const Lane inverse = inverse_or_zero(scale);
        Lane error{}, common{}, elements{};
#pragma GCC unroll 1
        for (int i = 0; i < Size; i += 4) {
            Lane levels[4];
            four_levels<Fp4Levels>(x + i, inverse, levels);
            UNROLL
            for (int j = 0; j < 4; ++j) {
                const Lane miss = x[i + j] - scale * levels[j], weight = weights[i + j];
                error = error + weight * (miss * miss);
                if constexpr (!IsWeighted) continue;
                common = common + weight * (miss * x[i + j]);
                elements = elements + weight * (x[i + j] * x[i + j]);
            }
        }
        if constexpr (!IsWeighted) return {error, error};
        const Lane share = common * inverse_or_zero(elements);
        return {error, error + coherence * (share * common)};
    }
};

template <class Rule>
struct RefinesFp4Scales : Rule {
    using Type = typename Rule::Type;
    static constexpr int block_size = Type::block_size, block_bytes = Type::block_bytes;

    template <class Lane, class Importance>
    static void refine(const Lane *x, const Importance &importance, const Effort &effort,
                       uint8_t *bytes) {
        constexpr int size = block_size / Rule::groups;
        IntOf<Lane> scales[Rule::groups];
        const auto read_scales = [](const uint8_t *block, int32_t *own) {
            for (int i = 0; i < Rule::groups; ++i) own[i] = block[i];
        };
        read_fields<block_bytes, Rule::groups, Lane>(bytes, read_scales, scales);
        MaskOf<Lane> is_better = no_lane<Lane>();
        for (int group = 0; group < Rule::groups; ++group) {
            Lane weights[size];
            if constexpr (is_weighted<Importance>) {
                importance.template load<size>(size * group, weights);
            } else {
                for (int i = 0; i < size; ++i) weights[i] = broadcast<Lane>(1.0f);
            }
            const auto best = best_scale<is_weighted<Importance>, size>(
                x + size * group, weights, scales[group], effort.reach);
            is_better = or_(is_better, not_(equal(best, scales[group])));
            scales[group] = best;
        }
        uint8_t candidate[block_bytes * width_of<Lane>];
        Type::write(x, scales, candidate);
        const auto is_usual = less(largest_number<block_size>(x), broadcast<Lane>(Rule::most));
        replace_blocks<block_bytes>(and_(is_better, is_usual), candidate, bytes);
    }

private:
    // The scale with the least loss whose error is not above that of ggml's `scale`.
    template <bool IsWeighted, int Size, class Lane>
    static KERNEL_INLINE IntOf<Lane> best_scale(const Lane *x, const Lane *weights,
                                                IntOf<Lane> scale, int reach) {
        using Int = IntOf<Lane>;
        using Loss = Fp4Loss<Lane>;
        const auto first =
            Loss::template of<IsWeighted, Size>(x, weights, Type::scale_of(scale));
        Lane least = first.total;
        Int best = scale;
#pragma GCC unroll 1
        for (int step = -reach; step <= reach + Rule::above; ++step) {
            const Int above = maximum(scale + step, broadcast_int<Int>(Rule::lowest));
            const Int other = minimum(above, broadcast_int<Int>(Rule::highest));
            const auto loss =
                Loss::template of<IsWeighted, Size>(x, weights, Type::scale_of(other));
            const auto is_better = and_(less(loss.total, least * clearly),
                                        not_(less(first.error, loss.error)));
            least = select(is_better, loss.total, least);
            best = select(is_better, other, best);
        }
        return best;
    }
};

}  // namespace
