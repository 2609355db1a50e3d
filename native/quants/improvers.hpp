// Improves the blocks of whole rows: as codec.hpp, with a block per lane, and with the scalar port for
// the blocks that fill no tile.
//
// An improver has `Type` and improve(x, importance, effort, block). It takes ggml's block as the
// first candidate and replaces it only by one with a smaller weighted error. Its
// weigh(x, importance, weights) gives the weights of that error, and multiply(factor, block)
// multiplies the block's numbers; a scalar improver has neither.
#pragma once
#include "codec.hpp"
#include "improve/grid_scales.hpp"
#include "improve/shared_line.hpp"
#include "improve/shared_scale.hpp"

extern "C" const Improvers ggufkit_improvers_portable;

namespace {

// An improver may say that one scalar source serves all instruction sets.
template <class Improver, class = void>
constexpr bool is_scalar_improver = false;
template <class Improver>
constexpr bool is_scalar_improver<Improver, decltype(void(Improver::scalar))> = Improver::scalar;

// An improver may have other efforts for blocks without importance: where ggml hardly searches, `best`
// would else take longer than ggml.
template <class Improver, class = void>
constexpr bool has_plain_efforts = false;
template <class Improver>
constexpr bool has_plain_efforts<Improver, decltype(void(Improver::plain_efforts))> = true;

template <class Improver, bool Weighted>
Effort effort_of(int number) {
    if (number >= search_count) return measured_efforts[number - search_count];
    if constexpr (!Weighted && has_plain_efforts<Improver>) return Improver::plain_efforts[number];
    return Improver::efforts[number];
}

// Searches for better blocks of all lanes, and stretches them. A scalar improver does that itself.
template <class Improver, class Lane, class Importance>
void improve_blocks(const Lane *x, const Importance &importance, const Effort &effort,
                    uint8_t *bytes) {
    uint8_t ggml[Improver::Type::block_bytes * width_of<Lane>];
    memcpy(ggml, bytes, sizeof ggml);
    Improver::improve(x, importance, effort, bytes);
    if constexpr (is_weighted<Importance> && !is_scalar_improver<Improver>) {
        if (effort.stretches) stretch<Improver>(x, importance, ggml, bytes);
    }
}

template <class Improver>
void improve_scalar(const float *x, const float *weights, float row_mean_square, int effort,
                    uint8_t *block) {
    if (weights) {
        const BlockImportance importance{weights, row_mean_square};
        improve_blocks<Improver>(x, importance, effort_of<Improver, true>(effort), block);
    } else {
        improve_blocks<Improver>(x, Unweighted{}, effort_of<Improver, false>(effort), block);
    }
}

inline const ImproverOf &portable_improver(uint32_t id) {
    const ImproverOf *found = ggufkit_improvers_portable.of;
    while (found->id != id) ++found;
    return *found;
}

template <class Improver, bool Weighted>
void improve_rows(const float *src, uint8_t *dst, int64_t rows, int64_t width,
                  const float *weights, int number) {
    using Type = typename Improver::Type;
    constexpr int size = Type::block_size, bytes = Type::block_bytes;
    const int64_t blocks = rows * (width / size);
    const Effort effort = effort_of<Improver, Weighted>(number);
    ImportanceWalk<Weighted && weighs_by_row<Type>> walk(src, rows, width, weights);
    int64_t block = 0;
    if constexpr (!portable && !is_scalar_improver<Improver>) {
        for (; block + lanes <= blocks; block += lanes) {
            Floats tile[size];
            load_tile<size>(src + block * size, tile);
            uint8_t *to = dst + block * bytes;
            if constexpr (Weighted) {
                improve_blocks<Improver>(tile, walk.template next_tile<size>(), effort, to);
            } else {
                improve_blocks<Improver>(tile, Unweighted{}, effort, to);
            }
        }
    }
    for (; block < blocks; ++block) {
        BlockImportance own{nullptr, 0.0f};
        if constexpr (Weighted) own = walk.template next_block<size>();
        const float *x = src + block * size;
        uint8_t *to = dst + block * bytes;
        if constexpr (portable) {
            improve_scalar<Improver>(x, own.weights, own.row_mean_square, number, to);
        } else {
            portable_improver(Type::id).improve_block(x, own.weights, own.row_mean_square, number,
                                                      to);
        }
    }
}

template <class Improver>
void improve(const float *src, uint8_t *dst, int64_t rows, int64_t width, const float *weights,
             int effort) {
    if constexpr (weights_of<typename Improver::Type> != weights_unused) {
        if (weights) return improve_rows<Improver, true>(src, dst, rows, width, weights, effort);
    }
    if constexpr (weights_of<typename Improver::Type> != weights_required) {
        improve_rows<Improver, false>(src, dst, rows, width, nullptr, effort);
    }
}

template <class Improver>
constexpr ImproverOf improver() {
    ImproverOf made{};
    made.id = Improver::Type::id;
    made.improve = improve<Improver>;
    if constexpr (portable) made.improve_block = improve_scalar<Improver>;
    return made;
}

constexpr ImproverOf all_improvers[] = {
    improver<ImprovesOneScale<ImprovesQ4_0>>(),
    improver<ImprovesOneScale<ImprovesQ5_0>>(),
    improver<ImprovesOneScale<ImprovesIQ4_NL>>(),
    improver<ImprovesSharedScale<ImprovesQ3_K>>(),
    improver<ImprovesSharedScale<ImprovesQ6_K>>(),
    improver<ImprovesSharedScale<ImprovesIQ4_XS>>(),
    improver<ImprovesOneLine<Q4_1>>(),
    improver<ImprovesOneLine<Q5_1>>(),
    improver<ImprovesSharedLine<ImprovesQ2_K>>(),
    improver<ImprovesSharedLine<ImprovesQ4_K>>(),
    improver<ImprovesSharedLine<ImprovesQ5_K>>(),
    improver<ImprovesGridScales<ScalesIQ2_XXS>>(),
    improver<ImprovesGridScales<ScalesIQ2_XS>>(),
    improver<ImprovesGridScales<ScalesIQ2_S>>(),
    improver<ImprovesGridScales<ScalesIQ3_XXS>>(),
    improver<ImprovesGridScales<ScalesIQ3_S>>(),
    improver<ImprovesGridScales<ScalesIQ1_S>>(),
    improver<ImprovesGridScales<ScalesIQ1_M>>(),
};

}  // namespace
