// Finds the nearest of a cell's neighbours, with a neighbour per lane.
#pragma once
#include "../lane.hpp"

namespace {

template <class Word>
KERNEL_INLINE Ints load_ints(const Word *from) {
    Ints ints;
    memcpy(&ints, from, sizeof ints);
    return ints;
}

KERNEL_INLINE Ints permute(Ints table, Ints index) {
    return bits_of(permute(float_of(table), index));
}

KERNEL_INLINE float lowest_lane(Floats value) {
    UNROLL
    for (int step = lanes / 2; step > 2; step /= 2) {
        value = minimum(value, permute(value, lane_numbers() ^ step));
    }
    value = minimum(value, permute_in_fours(value, lane_numbers() ^ 2));
    return minimum(value, permute_in_fours(value, lane_numbers() ^ 1))[0];
}

KERNEL_INLINE float highest_lane(Floats value) { return -lowest_lane(-value); }

struct Neighbour {
    uint32_t code;
    float distance;
};

// The term of each level of each element in a neighbour's distance.
template <int Dimensions, int Spread>
class LevelTables {
    static constexpr int tables = Spread > lanes ? Spread / lanes : 1;  // of an element

public:
    LevelTables() = default;

    // Looks up the term of the level in each lane, element by element.
    template <class Term>
    KERNEL_INLINE explicit LevelTables(Term term) {
        UNROLL
        for (int i = 0; i < Dimensions; ++i) {
            UNROLL
            for (int j = 0; j < tables; ++j) {
                of_[i][j] = term(i, to_floats((lane_numbers() + j * lanes) & (Spread - 1)));
            }
        }
    }

    // The first of the nearest.
    KERNEL_INLINE Neighbour nearest(const uint32_t *codes, int count) const {
        Floats least = broadcast(largest_float);
        Ints winners = broadcast(0);
        for (int first = 0;; first += lanes) {
            const Ints numbers = lane_numbers() + first;
            const Floats now = sums(codes + first);
            const Mask nearer = and_(less(now, least), greater(broadcast(count), numbers));
            least = select(nearer, now, least);
            if (count <= lanes) break;
            winners = select(nearer, numbers, winners);
            if (first + lanes >= count) break;
        }
        const float lowest = lowest_lane(least);
        uint32_t where = movemask(equal(least, broadcast(lowest)));
        int best = __builtin_ctz(where);
        if (count > lanes) {
            best = winners[best];
            while ((where &= where - 1) != 0) best = minimum(best, winners[__builtin_ctz(where)]);
        }
        return {codes[best], lowest};
    }

    // The sums of the levels' terms, a neighbour per lane.
    KERNEL_INLINE Floats sums(const uint32_t *from) const {
        const Ints codes = load_ints(from);
        Floats sum = look_up(codes, 0);
        UNROLL
        for (int i = 1; i < Dimensions; ++i) sum = sum + look_up(codes, i);
        return sum;
    }

private:
    // Tables repeat, so that bits above a level do not matter.
    KERNEL_INLINE Floats look_up(Ints codes, int place) const {
        const Ints index = shift_right(codes, 16 / Dimensions * place);
        if constexpr (Spread == 4) {
            return permute_in_fours(of_[place][0], index);
        } else if constexpr (tables == 1) {
            return permute(of_[place][0], index);
        } else {
            const Floats lower = permute(of_[place][0], index),
                         upper = permute(of_[place][1], index);
            return select(greater(index & lanes, broadcast(0)), upper, lower);
        }
    }

    Floats of_[Dimensions][tables];
};

}  // namespace
