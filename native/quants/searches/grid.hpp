// The search for a scale and points of a grid: what quantize_row_iq2_xxs_impl, _iq2_xs_impl,
// _iq2_s_impl, _iq3_xxs_impl and _iq3_s_impl of ggml have in common.
#pragma once
#include "grid_lanes.hpp"
#include "grid_scalar.hpp"

namespace {

// The result of the search for a part.
template <class Shape>
struct GridFit {
    float scale;
    bool flipped;  // negate the signs of all elements
    uint16_t points[Shape::groups];
};

// The groups on which the best scale is tried once more.
enum class Again { where_off_grid, all_if_any_off_grid, all };

// Rule says `candidates` (odd), their `step`, and which groups come `again`.
template <class Rule, class Search>
class GridScaleSearch {
    using Shape = typename Rule::Shape;
    using Trials = GridTrials<Shape, Rule::candidates>;
    static constexpr int highest_value = 2 * Shape::levels - 1;

public:
    Search search;

    // A search goes step by step, and ends where one of them returns false: it cannot do as ggml
    // does. It tries inverse scales around `highest_value / range`.
    template <class... Rest>
    KERNEL_NOINLINE bool begin(const GridPart<Shape> &part, const Neighbours &grid, float range,
                               float scale, Rest &...rest) {
        constexpr int count = Rule::candidates;
        grid_ = &grid;
        scale_ = scale;
        for (uint32_t &code : codes_) code = grid.codes[whole_cell(grid, 0).first];
        on_grid_ = Rule::again == Again::where_off_grid ? every_group : 0;
        Trials &trials = search.trials;
        trials.range = range;
        for (int i = trials.used; i < trials.room; ++i) trials.scales[i] = 0.0f;
        for (int i = 0; i < trials.used; ++i) {
            trials.inverses[i] = (highest_value + (i - count / 2) * Rule::step) / range;
            trials.scales[i] = 1.0f / trials.inverses[i];
        }
        return search.begin(part, grid, rest...);
    }

    KERNEL_NOINLINE void choose() {
        const Trials &trials = search.trials;
        float best = 0.0f;
        int winner = -1;
        for (uint32_t rest = search.contenders(best); rest != 0; rest &= rest - 1) {
            const int i = __builtin_ctz(rest);
            const float product = trials.products[i], square = trials.squares[i];
            // Rounding may let ggml find equal sums better, and then so up to a column's last.
            const int ends[] = {trials.first(i), trials.last[i]};
            for (const int trial : ends) {
                if (square > 0.0f && product * product > best * square) {
                    scale_ = product / square;
                    best = scale_ * product;
                    winner = trial;
                }
            }
        }
        won_ = winner >= 0;
        if (won_) take(winner);
    }

    // Tries the best scale once more, first on points and then on itself.
    KERNEL_NOINLINE bool find_again() {
        const bool some = Rule::again == Again::where_off_grid;
        const uint32_t requested = some ? every_group & ~on_grid_ : every_group;
        const bool tries = Rule::again == Again::all || on_grid_ != every_group;
        refines_ = tries && scale_ > 0.0f;
        if (!refines_) return true;
        uint32_t before[Shape::groups];
        memcpy(before, codes_, sizeof before);
        const bool finds = search.find_again(scale_, requested, codes_);
        // If no point has changed, the scale already fits them.
        refines_ = !won_ || memcmp(before, codes_, sizeof before) != 0;
        return finds;
    }

    KERNEL_NOINLINE void refine() {
        if (!refines_) return;
        const GridSums<Shape> sums = search.sums(codes_);
        if (sums.square > 0.0f) scale_ = sums.product / sums.square;
    }

    bool end(GridFit<Shape> &fit) const {
        fit.flipped = scale_ < 0.0f;
        fit.scale = fit.flipped ? -scale_ : scale_;
        for (int i = 0; i < Shape::groups; ++i) {
            fit.points[i] = static_cast<uint16_t>(codes_[i] >> 16);
        }
        return fit.scale >= 0.0f;
    }

private:
    static constexpr uint32_t every_group = (1u << Shape::groups) - 1;

    void take(int winner) {
        const Trials &trials = search.trials;
        on_grid_ = 0;
        for (int i = 0; i < Shape::groups; ++i) {
            const int place = i * Rule::candidates + winner;
            codes_[i] = trials.codes[place];
            on_grid_ |= static_cast<uint32_t>(grid_->cells[trials.cells[place]].on_grid) << i;
        }
    }

    const Neighbours *grid_;
    float scale_;
    uint32_t codes_[Shape::groups];
    uint32_t on_grid_;
    bool won_, refines_;
};

// Fits those parts of a block that are requested and that lanes search as ggml does; returns which.
// A team of parts goes step by step, so that none waits for its own results.
template <class Rule, int Parts>
uint32_t fit_in_lanes(const GridPart<typename Rule::Shape> (&parts)[Parts], const Neighbours &grid,
                      const float (&ranges)[Parts], const float (&scales)[Parts],
                      uint32_t requested, GridFit<typename Rule::Shape> (&fits)[Parts]) {
    using Search = LanesGridSearch<Rule>;
    constexpr int interleaved = 8 / Rule::Shape::groups;
    GridScaleSearch<Rule, Search> members[interleaved];
    Search *team[interleaved];
    for (int i = 0; i < interleaved; ++i) team[i] = &members[i].search;
    typename Search::template TeamBatches<interleaved> batches;
    uint32_t fitted = 0;
    for (int first = 0; first < Parts; first += interleaved) {
        batches.clear();
        uint32_t begun = 0;
        for (int i = 0; i < interleaved; ++i) {
            const int part = first + i;
            if (!(requested >> part & 1)) continue;
            const bool begins =
                members[i].begin(parts[part], grid, ranges[part], scales[part], i, batches);
            begun |= static_cast<uint32_t>(begins) << i;
        }
        const auto each = [&members](uint32_t rest, auto step) {
            for (; rest != 0; rest &= rest - 1) {
                const int i = __builtin_ctz(rest);
                step(i, members[i]);
            }
        };
        Search::find(team, batches);
        each(begun, [](int, auto &member) { member.search.make_columns(); });
        each(begun, [](int, auto &member) { member.search.sum_up(); });
        each(begun, [](int, auto &member) { member.choose(); });
        uint32_t refined = 0;
        each(begun, [&](int i, auto &member) {
            refined |= static_cast<uint32_t>(member.find_again()) << i;
        });
        each(refined, [](int, auto &member) { member.refine(); });
        each(refined, [&](int i, auto &member) {
            fitted |= static_cast<uint32_t>(member.end(fits[first + i])) << (first + i);
        });
    }
    return fitted;
}

// Fits those parts of a block that are requested. Returns the first at which ggml aborts, or -1.
template <class Rule, int Parts>
int fit_to_grid(const GridPart<typename Rule::Shape> (&parts)[Parts], const Neighbours &grid,
                const float (&ranges)[Parts], const float (&scales)[Parts], uint32_t requested,
                GridFit<typename Rule::Shape> (&fits)[Parts]) {
    if constexpr (!portable) {
        requested &= ~fit_in_lanes<Rule>(parts, grid, ranges, scales, requested, fits);
    }
    for (; requested != 0; requested &= requested - 1) {
        const int i = __builtin_ctz(requested);
        GridScaleSearch<Rule, ScalarGridSearch<Rule>> part;
        if (!part.begin(parts[i], grid, ranges[i], scales[i])) return i;
        part.search.sum_up();
        part.choose();
        if (!part.find_again()) return i;
        part.refine();
        if (!part.end(fits[i])) return i;
    }
    return -1;
}

}  // namespace
