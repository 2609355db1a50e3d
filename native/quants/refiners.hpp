// Refines the blocks of whole rows: as codec.hpp, with a block per lane, and with the scalar port
// for the blocks that fill no tile.
//
// An refiner has `Type` and refine(x, importance, effort, block). It takes ggml's block as the
// first candidate and replaces it only by one with a smaller weighted error. Its
// weigh(x, importance, weights) gives the weights of that error; a scalar refiner has none.
#pragma once
#include "codec.hpp"
#include "refine/fp4_scales.hpp"
#include "refine/grid_scales.hpp"
#include "refine/shared_affine.hpp"
#include "refine/shared_scale.hpp"

extern "C" const Refiners ggufkit_refiners_portable;

namespace {

// An refiner may say that one scalar source serves all instruction sets.
template <class Refinement, class = void>
constexpr bool is_scalar_refiner = false;
template <class Refinement>
constexpr bool is_scalar_refiner<Refinement, decltype(void(Refinement::scalar))> =
    Refinement::scalar;

// An refiner may have other efforts for blocks without importance: where ggml hardly searches,
// `best` would else take longer than ggml.
template <class Refinement, class = void>
constexpr bool has_plain_efforts = false;
template <class Refinement>
constexpr bool has_plain_efforts<Refinement, decltype(void(Refinement::plain_efforts))> = true;

template <class Refinement, bool Weighted>
Effort effort_of(int number) {
    if constexpr (!Weighted && has_plain_efforts<Refinement>)
        return Refinement::plain_efforts[number];
    return Refinement::efforts[number];
}

// Searches for better blocks of all lanes, and corrects their scales if these are halves. A scalar
// refiner does that itself.
template <class Refinement, class Lane, class Importance>
void refine_blocks(const Lane *x, const Importance &importance, const Effort &effort,
                   uint8_t *bytes) {
    uint8_t ggml[Refinement::Type::block_bytes * width_of<Lane>];
    memcpy(ggml, bytes, sizeof ggml);
    Refinement::refine(x, importance, effort, bytes);
    if constexpr (is_weighted<Importance> && !is_scalar_refiner<Refinement> &&
                  has_half<typename Refinement::Type::Block>) {
        correct_scale<Refinement>(x, importance, ggml, bytes);
    }
}

template <class Refinement>
void refine_scalar(const float *x, const float *weights, float row_mean_square, int effort,
                   uint8_t *block) {
    if (weights) {
        const BlockImportance importance{weights, row_mean_square};
        refine_blocks<Refinement>(x, importance, effort_of<Refinement, true>(effort), block);
    } else {
        refine_blocks<Refinement>(x, Unweighted{}, effort_of<Refinement, false>(effort), block);
    }
}

inline const Refiner &portable_refiner(uint32_t id) {
    const Refiner *result = ggufkit_refiners_portable.of;
    while (result->id != id) ++result;
    return *result;
}

template <class Refinement, bool Weighted>
void refine_rows(const float *src, uint8_t *dst, int64_t rows, int64_t width, const float *weights,
                 int number) {
    using Type = typename Refinement::Type;
    constexpr int size = Type::block_size, bytes = Type::block_bytes;
    const int64_t blocks = rows * (width / size);
    const Effort effort = effort_of<Refinement, Weighted>(number);
    ImportanceWalk<Weighted && weighs_by_row<Type>> walk(src, rows, width, weights);
    int64_t block = 0;
    if constexpr (!portable && !is_scalar_refiner<Refinement>) {
        for (; block + lanes <= blocks; block += lanes) {
            Floats tile[size];
            load_tile<size>(src + block * size, tile);
            uint8_t *to = dst + block * bytes;
            if constexpr (Weighted) {
                refine_blocks<Refinement>(tile, walk.template next_tile<size>(), effort, to);
            } else {
                refine_blocks<Refinement>(tile, Unweighted{}, effort, to);
            }
        }
    }
    for (; block < blocks; ++block) {
        BlockImportance own{nullptr, 0.0f};
        if constexpr (Weighted) own = walk.template next_block<size>();
        const float *x = src + block * size;
        uint8_t *to = dst + block * bytes;
        if constexpr (portable) {
            refine_scalar<Refinement>(x, own.weights, own.row_mean_square, number, to);
        } else {
            portable_refiner(Type::id).refine_block(x, own.weights, own.row_mean_square, number,
                                                    to);
        }
    }
}

template <class Refinement>
void refine(const float *src, uint8_t *dst, int64_t rows, int64_t width, const float *weights,
            int effort) {
    if constexpr (weights_of<typename Refinement::Type> != weights_unused) {
        if (weights) return refine_rows<Refinement, true>(src, dst, rows, width, weights, effort);
    }
    if constexpr (weights_of<typename Refinement::Type> != weights_required) {
        refine_rows<Refinement, false>(src, dst, rows, width, nullptr, effort);
    }
}

template <class Refinement>
constexpr Refiner refiner() {
    Refiner entry{};
    entry.id = Refinement::Type::id;
    entry.refine = refine<Refinement>;
    if constexpr (portable) entry.refine_block = refine_scalar<Refinement>;
    return entry;
}

constexpr Refiner all_refiners[] = {
    refiner<RefinesSingleScale<RefinesQ4_0>>(),   refiner<RefinesSingleScale<RefinesQ5_0>>(),
    refiner<RefinesSingleScale<RefinesIQ4_NL>>(), refiner<RefinesSharedScale<RefinesQ3_K>>(),
    refiner<RefinesSharedScale<RefinesQ6_K>>(),   refiner<RefinesSharedScale<RefinesIQ4_XS>>(),
    refiner<RefinesSingleAffine<Q4_1>>(),         refiner<RefinesSingleAffine<Q5_1>>(),
    refiner<RefinesSharedAffine<RefinesQ2_K>>(),  refiner<RefinesSharedAffine<RefinesQ4_K>>(),
    refiner<RefinesSharedAffine<RefinesQ5_K>>(),  refiner<RefinesGridScales<ScalesIQ2_XXS>>(),
    refiner<RefinesGridScales<ScalesIQ2_XS>>(),   refiner<RefinesGridScales<ScalesIQ2_S>>(),
    refiner<RefinesGridScales<ScalesIQ3_XXS>>(),  refiner<RefinesGridScales<ScalesIQ3_S>>(),
    refiner<RefinesGridScales<ScalesIQ1_S>>(),    refiner<RefinesGridScales<ScalesIQ1_M>>(),
    refiner<RefinesFp4Scales<RefinesMXFP4>>(),    refiner<RefinesFp4Scales<RefinesNVFP4>>(),
};

}  // namespace
