// The search of IQ1 for the two borders that split sorted elements into three levels: what
// quantize_row_iq1_s_impl and quantize_row_iq1_m_impl of ggml try exhaustively.
#pragma once
#include "../lane.hpp"
#include "contest.hpp"

namespace {

// The values of IQ1's levels in a raised group, and in a lowered one.
constexpr float raised_values[3] = {-0.875f, 0.125f, 1.125f};
constexpr float lowered_values[3] = {-1.125f, -0.125f, 0.875f};

// Weighted sums of x * value and value * value, by choice of the lowered groups.
template <class Lane, int Choices>
struct SplitSums {
    Lane products[Choices], squares[Choices];
};

template <class Lane>
KERNEL_INLINE Lane load_lane(const float *from) {
    Lane value;
    memcpy(&value, from, sizeof value);
    return value;
}

// Sums over the elements before each border, with room to read past the last.
template <int Size>
struct Prefix {
    float of[Size + 1 + lanes] = {};
};

// All groups are raised or all are lowered: IQ1_S.
template <int Size>
class TogetherSums {
public:
    static constexpr int choices = 2;

    TogetherSums(const float *x, const float *weights, const int *order) {
        for (int i = 0; i < Size; ++i) {
            x_.of[i + 1] = x_.of[i] + weights[order[i]] * x[order[i]];
            weights_.of[i + 1] = weights_.of[i] + weights[order[i]];
        }
        for (int k = 0; k < choices; ++k) {
            const float low = values(k)[0], high = values(k)[2];
            for (int i = 0; i <= Size; ++i) {
                low_x_[k].of[i] = x_.of[i] * low;
                low_squares_[k].of[i] = weights_.of[i] * low * low;
                high_x_[k].of[i] = (x_.of[Size] - x_.of[i]) * high;
                high_squares_[k].of[i] = (weights_.of[Size] - weights_.of[i]) * high * high;
            }
        }
    }

    // The sums for the borders `first` and, in lanes, `second` and those that follow.
    template <class Lane>
    KERNEL_INLINE SplitSums<Lane, choices> index(int first, int second) const {
        const Lane x = load_lane<Lane>(x_.of + second) - x_.of[first];
        const Lane weight = load_lane<Lane>(weights_.of + second) - weights_.of[first];
        SplitSums<Lane, choices> sums;
        UNROLL
        for (int k = 0; k < choices; ++k) {
            const float middle = values(k)[1];
            sums.products[k] =
                low_x_[k].of[first] + x * middle + load_lane<Lane>(high_x_[k].of + second);
            sums.squares[k] = low_squares_[k].of[first] + weight * middle * middle +
                              load_lane<Lane>(high_squares_[k].of + second);
        }
        return sums;
    }

private:
    static KERNEL_INLINE const float (&values(int choice))[3] {
        return choice ? lowered_values : raised_values;
    }

    Prefix<Size> x_, weights_;
    Prefix<Size> low_x_[choices], low_squares_[choices], high_x_[choices], high_squares_[choices];
};

// Either half is raised or lowered: IQ1_M.
template <int Size>
class ApartSums {
public:
    static constexpr int choices = 4;

    ApartSums(const float *x, const float *weights, const int *order) {
        float sums[2] = {}, sums_of_weights[2] = {};
        float of_weights[2][Size + 1] = {};
        for (int i = 0; i < Size; ++i) {
            const int index = order[i], half = index < Size / 2 ? 0 : 1;
            sums[half] = sums[half] + weights[index] * x[index];
            sums_of_weights[half] = sums_of_weights[half] + weights[index];
            for (int h = 0; h < 2; ++h) {
                x_[h].of[i + 1] = sums[h];
                of_weights[h][i + 1] = sums_of_weights[h];
            }
        }
        for (int h = 0; h < 2; ++h) {
            for (int sign = 0; sign < 2; ++sign) {
                const float *value = sign ? lowered_values : raised_values;
                const float first_step = value[0] * value[0] - value[1] * value[1];
                const float second_step = value[1] * value[1] - value[2] * value[2];
                all_x_[h][sign] = sums[h] * value[2];
                for (int i = 0; i <= Size; ++i) {
                    const float weight = of_weights[h][i];
                    first_[h][sign].of[i] =
                        sums_of_weights[h] * value[2] * value[2] + weight * first_step;
                    second_[h][sign].of[i] = weight * second_step;
                }
            }
        }
    }

    template <class Lane>
    KERNEL_INLINE SplitSums<Lane, choices> index(int first, int second) const {
        Lane products[2][2], squares[2][2];
        UNROLL
        for (int i = 0; i < 4; ++i) {
            const int h = i / 2, sign = i % 2;
            const Lane below = x_[h].of[first] + load_lane<Lane>(x_[h].of + second);
            products[h][sign] = all_x_[h][sign] - below;
            squares[h][sign] =
                first_[h][sign].of[first] + load_lane<Lane>(second_[h][sign].of + second);
        }
        SplitSums<Lane, choices> sums;
        UNROLL
        for (int k = 0; k < choices; ++k) {
            sums.products[k] = products[0][k / 2] + products[1][k % 2];
            sums.squares[k] = squares[0][k / 2] + squares[1][k % 2];
        }
        return sums;
    }

private:
    Prefix<Size> x_[2], first_[2][2], second_[2][2];
    float all_x_[2][2];
};

struct Split {
    float scale;
    int first = -1, second = -1, choice = -1;
    float score = -largest_float;

    // Keeps the borders if their score is the best so far.
    KERNEL_INLINE void offer(float product, float square, int at_first, int at_second, int k) {
        if (square > 0.0f && product * product > score * square) {
            scale = product / square;
            score = scale * product;
            first = at_first;
            second = at_second;
            choice = k;
        }
    }
};

// The order of Size elements when sorted stably.
template <int Size>
void sort_order(const float *x, int *order) {
    for (int i = 0; i < Size; ++i) {
        int place = i;
        for (; place > 0 && x[i] < x[order[place - 1]]; --place) order[place] = order[place - 1];
        order[place] = i;
    }
}

// The same by counting the elements before each one; none may be a NaN.
template <int Size>
void sort_order_in_lanes(const float *x, int *order) {
    Ints own, ranks[Size / lanes] = {};
    UNROLL
    for (int i = 0; i < lanes; ++i) own[i] = i;
    for (int i = 0; i < Size; ++i) {
        const Floats one = broadcast(x[i]);
        UNROLL
        for (int v = 0; v < Size / lanes; ++v) {
            const Floats others = load(x + v * lanes);
            const Mask later = greater(own + v * lanes, broadcast(i));
            const Mask before = or_(less(one, others), and_(equal(one, others), later));
            ranks[v] = ranks[v] + select(before, broadcast(1), broadcast(0));
        }
    }
    int32_t places[Size];
    memcpy(places, ranks, sizeof places);
    for (int i = 0; i < Size; ++i) order[places[i]] = i;
}

template <int Size, class Sums>
Split best_split(const Sums &sums, float scale) {
    Split best{scale};
    for (int first = 0; first <= Size; ++first) {
        for (int second = first; second <= Size; ++second) {
            const auto here = sums.template index<float>(first, second);
            for (int k = 0; k < Sums::choices; ++k) {
                best.offer(here.products[k], here.squares[k], first, second, k);
            }
        }
    }
    return best;
}

template <int Size, class Sums>
float reachable_score(const Sums &sums) {
    // A vector that reaches beyond the last border is left out, unless there is no other.
    constexpr int fewest = Size > lanes ? lanes : 1;
    Contest contest;
    for (int first = Size / 8; first <= Size * 5 / 8; first += Size / 8) {
        for (int second = first; second + fewest <= Size + 1; second += lanes) {
            const auto here = sums.template index<Floats>(first, second);
            UNROLL
            for (int k = 0; k < Sums::choices; ++k) {
                const Floats product = here.products[k] * here.products[k];
                if constexpr (fewest == lanes) {
                    contest.offer(product, here.squares[k]);
                } else {
                    const Mask some = greater(broadcast(Size + 1 - second), lane_numbers());
                    contest.offer(product, here.squares[k], some);
                }
            }
        }
    }
    return contest.reachable(-largest_float);
}

template <int Size, class Sums>
Split best_split_in_lanes(const Sums &sums, float scale) {
    Split best{scale};
    best.score = reachable_score<Size>(sums);
    for (int first = 0; first <= Size; ++first) {
        for (int second = first; second <= Size; second += lanes) {
            const auto here = sums.template index<Floats>(first, second);
            const Floats score = broadcast(best.score);
            uint32_t promising = 0;
            UNROLL
            for (int k = 0; k < Sums::choices; ++k) {
                const Floats product = here.products[k] * here.products[k];
                promising |= movemask(less(score * here.squares[k], product));
            }
            const int room = Size + 1 - second;
            if (room < lanes) promising &= (1u << room) - 1;
            for (; promising != 0; promising &= promising - 1) {
                const int lane = __builtin_ctz(promising);
                for (int k = 0; k < Sums::choices; ++k) {
                    best.offer(here.products[k][lane], here.squares[k][lane], first, second + lane,
                               k);
                }
            }
        }
    }
    return best;
}

}  // namespace
