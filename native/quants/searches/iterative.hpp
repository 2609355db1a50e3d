// The search that moves levels one by one: make_q3_quants of ggml, with do_rmse.
#pragma once
#include "../lane.hpp"

namespace {

// Sixteen levels of four bits each; no single number determines them.
template <class Lane>
struct IterativeFit {
    Lane scale;
    IntOf<Lane> packed[2];

    template <int Top>
    KERNEL_INLINE IntOf<Lane> level(Lane, int i) const {
        return shift_right(packed[i / 8], 4 * (i % 8)) & 15;
    }
};

// A group of sixteen during the search: its levels, and their sums.
template <class Lane>
struct IterativeGroup {
    const Lane *x;
    Lane levels[16];
    Lane sum, squares;
    MaskOf<Lane> empty;
};

// The groups of a block. Each step of one waits for a division, so steps of other groups run
// meanwhile. After a round most groups are at rest, so the next round takes only those that moved.
template <int Top, class Lane>
class IterativeSearch {
    static constexpr int interleaved = 2 * Lanes<Lane>::interleaved;
    using Values = Several<Lane, interleaved>;
    using Masks = SeveralMasks<Lane, interleaved>;
    using Group = IterativeGroup<Lane>;

public:
    KERNEL_INLINE explicit IterativeSearch(const Lane *x) {
        for (int i = 0; i < 16; ++i) groups_[i].x = x + 16 * i;
        for (int i = 0; i < 16; ++i) order_[i] = groups_ + i;
        for (int i = 0; i < 16; i += interleaved) start(order_ + i);
        int restless = 16;
        for (int round = 0; round < 5 && restless > 0; ++round) restless = refine(restless);
    }

    KERNEL_INLINE IterativeFit<Lane> fit(int index) const {
        using Int = IntOf<Lane>;
        const Group &group = groups_[index];
        const Lane none{};
        const auto scaled = and_(less(none, group.squares), not_(group.empty));
        IterativeFit<Lane> result{select(scaled, group.sum / group.squares, none), {}};
        for (int i = 0; i < 16; ++i) {
            const Int level = nearest_int(group.levels[i] + static_cast<float>(Top));
            result.packed[i / 8] |= select(group.empty, Int{}, level) << 4 * (i % 8);
        }
        return result;
    }

private:
    template <class Get>
    static KERNEL_INLINE Values gather(Get get) {
        Values values;
        UNROLL
        for (int j = 0; j < interleaved; ++j) values.of[j] = get(j);
        return values;
    }

    static KERNEL_INLINE Values fill(float value) {
        return gather([=](int) { return broadcast<Lane>(value); });
    }

    // Exact for any argument, unlike `nearest`: quotients may be arbitrarily large.
    static KERNEL_INLINE Values clamped(Values value) {
        using Int = IntOf<Lane>;
        UNROLL
        for (int j = 0; j < interleaved; ++j) {
            const Int level = minimum(nearest_int(value.of[j]), broadcast_int<Int>(Top - 1));
            value.of[j] = to_floats(maximum(level, broadcast_int<Int>(-Top)));
        }
        return value;
    }

    static KERNEL_INLINE void start(Group *const *groups) {
        Values size{}, extreme{}, sum{}, squares{};
        for (int i = 0; i < 16; ++i) {
            const Values here = gather([=](int j) { return groups[j]->x[i]; });
            const Masks larger = less(size, absolute(here));
            extreme = select(larger, here, extreme);
            size = select(larger, absolute(here), size);
        }
        const Masks empty = less(size, fill(least_group));
        const Values inverse = fill(-Top) / extreme;
        for (int i = 0; i < 16; ++i) {
            const Values here = gather([=](int j) { return groups[j]->x[i]; });
            const Values square = here * here, level = clamped(inverse * here);
            sum = sum + square * here * level;
            squares = squares + square * level * level;
            UNROLL
            for (int j = 0; j < interleaved; ++j) groups[j]->levels[i] = level.of[j];
        }
        // Empty groups never move: the sum without a level stays below zero.
        sum = select(empty, fill(-1.0f), sum);
        UNROLL
        for (int j = 0; j < interleaved; ++j) {
            groups[j]->sum = sum.of[j];
            groups[j]->squares = squares.of[j];
            groups[j]->empty = empty.of[j];
        }
    }

    // Tries all levels of the first groups in `order_`, moves those that changed to the front, and
    // returns their number. A group at rest that is tried again does not change.
    KERNEL_INLINE int refine(int restless) {
        int still_restless = 0;
        for (int first = 0; first < restless; first += interleaved) {
            const Masks moved = attempt(order_ + first);
            UNROLL
            for (int j = 0; j < interleaved; ++j) {
                if (!any(moved.of[j])) continue;
                Group *const other = order_[still_restless];
                order_[still_restless++] = order_[first + j];
                order_[first + j] = other;
            }
        }
        return still_restless;
    }

    // Returns the groups in which a level moved.
    static KERNEL_INLINE Masks attempt(Group *const *groups) {
        const Values none{};
        Values best = gather([=](int j) { return groups[j]->sum; });
        Values best_squares = gather([=](int j) { return groups[j]->squares; });
        Masks moved = less(none, none);
#pragma GCC unroll 1
        for (int i = 0; i < 16; ++i) {
            const Values here = gather([=](int j) { return groups[j]->x[i]; });
            const Values level = gather([=](int j) { return groups[j]->levels[i]; });
            const Values square = here * here, weighted = square * here;
            Values sum = best - weighted * level, squares = best_squares - square * level * level;
            const Masks usable = less(none, sum);
            const Values requested = clamped(here * squares / sum);
            sum = sum + weighted * requested;
            squares = squares + square * requested * requested;
            const Masks better = less(best * best * squares, sum * sum * best_squares);
            Masks moves = and_(and_(usable, better), less(none, squares));
            moves = and_(moves, or_(less(level, requested), less(requested, level)));
            best = select(moves, sum, best);
            best_squares = select(moves, squares, best_squares);
            moved = or_(moved, moves);
            const Values chosen = select(moves, requested, level);
            UNROLL
            for (int j = 0; j < interleaved; ++j) groups[j]->levels[i] = chosen.of[j];
        }
        UNROLL
        for (int j = 0; j < interleaved; ++j) {
            groups[j]->sum = best.of[j];
            groups[j]->squares = best_squares.of[j];
        }
        return moved;
    }

    Group groups_[16];
    Group *order_[16];  // those that may move come first
};

}  // namespace
