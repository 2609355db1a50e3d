// The search for a scale of levels around zero in ik_llama.cpp: make_qx_quants with rmse_type 1.
// Candidates come from both ends of the levels; then single levels change one by one.
#pragma once
#include "uneven.hpp"

namespace {

template <int Size, int Top, class Lane>
class SteppedSearch {
public:
    SteppedSearch(const Lane *x, const Lane *weights) : x_(x), weights_(weights) {}

    // Returns the scale, and the levels from -Top to Top - 1.
    Lane run(Lane *levels) {
        const Lane extreme = extreme_of<Size>(x_);
        const auto empty = less(absolute(extreme), broadcast<Lane>(least_group));
        Lane inverse = broadcast<Lane>(-Top) / extreme;
        sum_up<1>(&inverse, &product_, &square_);
        best_.scale = select(equal(square_, Lane{}), Lane{}, product_ / square_);
        best_.score = best_.scale * product_;
        for (int tenths = -9; tenths <= 9; ++tenths) {
            const float more = 0.1f * static_cast<float>(tenths);
            const Lane inverses[2] = {broadcast<Lane>(-(Top + more)) / extreme,
                                      broadcast<Lane>(Top - 1 + more) / extreme};
            Lane products[2], squares[2];
            sum_up<2>(inverses, products, squares);
            for (int i = 0; i < 2; ++i) {
                inverse = select(settle(products[i], squares[i]), inverses[i], inverse);
            }
        }
        for (int i = 0; i < Size; ++i) {
            levels[i] = select(empty, broadcast<Lane>(-Top), level(inverse * x_[i]));
        }
        auto active = not_(empty);
        for (int i = 0; i < Size * (2 * Top - 1) && any(active); ++i) active = step(levels, active);
        return select(empty, Lane{}, best_.scale);
    }

private:
    static KERNEL_INLINE Lane level(Lane scaled) {
        const Lane capped = minimum(nearest(scaled), broadcast<Lane>(Top - 1));
        return maximum(capped, broadcast<Lane>(-Top));
    }

    template <int Count>
    KERNEL_INLINE void sum_up(const Lane *inverses, Lane *products_of, Lane *squares_of) const {
        Lane products[Count] = {}, squares[Count] = {};
#pragma GCC unroll 4
        for (int i = 0; i < Size; ++i) {
            UNROLL
            for (int k = 0; k < Count; ++k) {
                const Lane here = level(inverses[k] * x_[i]);
                products[k] = products[k] + weights_[i] * x_[i] * here;
                squares[k] = squares[k] + weights_[i] * here * here;
            }
        }
        for (int k = 0; k < Count; ++k) {
            products_of[k] = products[k];
            squares_of[k] = squares[k];
        }
    }

    // Takes the scale of these sums where it is better; returns where.
    KERNEL_INLINE MaskOf<Lane> settle(Lane product, Lane square) {
        const auto better = best_.settle(product, square);
        product_ = select(better, product, product_);
        square_ = select(better, square, square_);
        return better;
    }

    // Moves the level with the steepest slope of the error by one, where that is better; returns
    // where.
    MaskOf<Lane> step(Lane *levels, MaskOf<Lane> active) {
        const Lane scale = best_.scale;
        Lane steepest{}, slope{}, weight{}, number{}, from{}, index = broadcast<Lane>(-1);
        for (int i = 0; i < Size; ++i) {
            const Lane here = scale * weights_[i] * (x_[i] - scale * levels[i]);
            const auto may_rise =
                and_(less(Lane{}, here), less(levels[i], broadcast<Lane>(Top - 1)));
            const auto may_fall = and_(less(here, Lane{}), less(broadcast<Lane>(-Top), levels[i]));
            const auto better = and_(or_(may_rise, may_fall), less(steepest, absolute(here)));
            steepest = select(better, absolute(here), steepest);
            slope = select(better, here, slope);
            weight = select(better, weights_[i], weight);
            number = select(better, x_[i], number);
            from = select(better, levels[i], from);
            index = select(better, broadcast<Lane>(i), index);
        }
        const Lane by = select(less(Lane{}, slope), broadcast<Lane>(1), broadcast<Lane>(-1));
        const Lane product = product_ + by * (weight * number);
        const Lane square = square_ + weight * (2.0f * by * from + 1.0f);
        active = and_(active, less(Lane{}, steepest));
        const auto better = settle(select(active, product, Lane{}), select(active, square, Lane{}));
        for (int i = 0; i < Size; ++i) {
            const auto moves = and_(better, equal(index, broadcast<Lane>(i)));
            levels[i] = select(moves, from + by, levels[i]);
        }
        return better;
    }

    const Lane *x_, *weights_;
    Lane product_, square_;
    BestScale<Lane> best_{};
};

}  // namespace
