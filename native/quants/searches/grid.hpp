// The search for a scale and points of a grid: what quantize_row_iq2_xxs_impl, _iq2_xs_impl,
// _iq2_s_impl, _iq3_xxs_impl and _iq3_s_impl of ggml have in common.
#pragma once
#include "grid_lanes.hpp"
#include "grid_scalar.hpp"

namespace {

// What the search makes of a part.
template <class Shape>
struct GridFit {
    float scale;
    bool flipped;  // the signs of all elements are to be turned round
    uint16_t points[Shape::groups];
};

// Which groups the winner's scale is to be tried on once more.
enum class Again { where_off_grid, all_if_any_off_grid, all };

// Rule says `candidates` (odd), their `step`, and which groups come `again`.
template <class Rule, class Search>
class GridScaleSearch {
    using Shape = typename Rule::Shape;
    static constexpr int highest_value = 2 * Shape::levels - 1;

public:
    GridScaleSearch(const GridPart<Shape> &part, const Neighbours &grid)
        : part_(part), search_(part, grid), grid_(grid) {}

    // Tries inverse scales around `highest_value / range`. Returns false where ggml aborts.
    bool run(float range, float scale, GridFit<Shape> &fit) {
        scale_ = scale;
        for (uint32_t &code : codes_) code = grid_.codes[grid_.whole_cell(0).first];
        on_grid_ = Rule::again == Again::where_off_grid ? every_group : 0;
        if (!choose(range)) return false;
        const bool tries = Rule::again == Again::all || on_grid_ != every_group;
        if (tries && scale_ > 0.0f && !refine()) return false;
        fit.flipped = scale_ < 0.0f;
        fit.scale = fit.flipped ? -scale_ : scale_;
        for (int i = 0; i < Shape::groups; ++i) {
            fit.points[i] = static_cast<uint16_t>(codes_[i] >> 16);
        }
        return fit.scale >= 0.0f;
    }

private:
    static constexpr uint32_t every_group = (1u << Shape::groups) - 1;
    using Trials = GridTrials<Shape, Rule::candidates>;

    KERNEL_APART bool choose(float range) {
        constexpr int count = Rule::candidates;
        Trials trials;
        for (int i = trials.used; i < trials.room; ++i) trials.scales[i] = 0.0f;
        for (int i = 0; i < trials.used; ++i) {
            trials.inverses[i] = (highest_value + (i - count / 2) * Rule::step) / range;
            trials.scales[i] = 1.0f / trials.inverses[i];
        }
        if (!search_.find(trials)) return false;
        search_.sum_up(trials);
        float best = 0.0f;
        int winner = -1;
        for (uint32_t left = search_.contenders(trials, best); left != 0; left &= left - 1) {
            const int i = __builtin_ctz(left);
            const float product = trials.products[i], square = trials.squares[i];
            // Rounding may let ggml find equal sums better, and then so up to a column's last.
            const int ends[] = {trials.first[i], trials.last[i]};
            for (const int trial : ends) {
                if (square > 0.0f && product * product > best * square) {
                    scale_ = product / square;
                    best = scale_ * product;
                    winner = trial;
                }
            }
        }
        if (winner >= 0) take(trials, winner);
        return true;
    }

    void take(const Trials &trials, int winner) {
        on_grid_ = 0;
        for (int i = 0; i < Shape::groups; ++i) {
            codes_[i] = trials.codes[i][winner];
            on_grid_ |= static_cast<uint32_t>(grid_.cells[trials.cells[i][winner]].on_grid) << i;
        }
    }

    KERNEL_APART bool refine() {
        const bool some = Rule::again == Again::where_off_grid;
        const uint32_t wanted = some ? every_group & ~on_grid_ : every_group;
        if (!search_.find_again(scale_, wanted, codes_)) return false;
        const GridSums<Shape> sums(part_, codes_);
        if (sums.square > 0.0f) scale_ = sums.product / sums.square;
        return true;
    }

    const GridPart<Shape> &part_;
    Search search_;
    const Neighbours &grid_;
    float scale_ = 0.0f;
    uint32_t codes_[Shape::groups];
    uint32_t on_grid_ = 0;
};

// Lanes search where they do as ggml does, the scalar port elsewhere.
template <class Rule>
bool fit_to_grid(const GridPart<typename Rule::Shape> &part, const Neighbours &grid, float range,
                 float scale, GridFit<typename Rule::Shape> &fit) {
    using Shape = typename Rule::Shape;
    if constexpr (!portable) {
        if (LanesGridSearch<Shape>::suits(part)) {
            GridScaleSearch<Rule, LanesGridSearch<Shape>> search(part, grid);
            if (search.run(range, scale, fit)) return true;
        }
    }
    return GridScaleSearch<Rule, ScalarGridSearch<Shape>>(part, grid).run(range, scale, fit);
}

}  // namespace
