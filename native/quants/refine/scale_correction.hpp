// The last step of a search with importance: a block's halves grow, and all its numbers with them.
//
// The least squared error makes numbers too small: a part of the errors is proportional to the
// elements. Inputs of a matrix vary together, so these parts add up over a row, and the others
// cancel. So the correction minimizes the error weighted by importance plus `coherence` times this
// part. How much it really counts depends on the model: see benchmarks/results/scale-correction.md.
#pragma once
#include "lane_blocks.hpp"
#include "levels.hpp"

namespace {

constexpr float coherence = 3.0f;
constexpr float half_step = 0x1.0p-11f;  // by which rounding to a half moves a number

template <class Type>
void decode_tile(const uint8_t *bytes, float *x) {
    Type::template decode_lanes<Cached>(bytes, x);
}

template <class Type>
void decode_tile(const uint8_t *bytes, Floats *x) {
    constexpr int size = Type::block_size;
    float numbers[lanes * size];
    for (int lane = 0; lane < lanes; ++lane) {
        Type::template decode_lanes<Cached>(bytes + lane * Type::block_bytes,
                                            numbers + lane * size);
    }
    load_tile<size, false>(numbers, x);
}

template <int Size, class Lane>
KERNEL_INLINE Lane error_between(const Lane *x, const Lane *y, const Lane *weights) {
    Lane error{};
    for (int i = 0; i < Size; ++i) {
        const Lane miss = x[i] - y[i];
        error = error + weights[i] * (miss * miss);
    }
    return error;
}

// Sums over a block of numbers that stand for elements.
template <class Lane>
struct CorrectionSums {
    Lane error{}, product{}, square{};  // of miss * miss, * number, and of number * number

    KERNEL_INLINE void add(Lane weight, Lane miss, Lane number) {
        error = error + weight * (miss * miss);
        product = product + weight * (miss * number);
        square = square + weight * (number * number);
    }
};

// By which share a block's numbers should grow while its error under `weights` stays below `limit`.
template <int Size, class Lane>
KERNEL_INLINE Lane correction_of(const Lane *x, const Lane *y, const Lane *importance,
                                 const Lane *weights, Lane limit) {
    CorrectionSums<Lane> plain, ruled;
    Lane elements{}, common{};  // sums of element * element, and of miss * element
    for (int i = 0; i < Size; ++i) {
        const Lane miss = x[i] - y[i];
        plain.add(importance[i], miss, y[i]);
        ruled.add(weights[i], miss, y[i]);
        elements = elements + importance[i] * (x[i] * x[i]);
        common = common + importance[i] * (miss * x[i]);
    }
    const Lane share = coherence * ((elements - common) / elements);
    const Lane requested =
        (plain.product + share * common) / (plain.square + share * (elements - common));
    const Lane room = ruled.product * ruled.product + ruled.square * (limit - ruled.error);
    const Lane most = (ruled.product + square_root(maximum(room, Lane{}))) / ruled.square;
    return minimum(requested, most - broadcast<Lane>(half_step));
}

// Less than two steps of a half could become nothing, or twice as much.
template <class Lane>
KERNEL_INLINE MaskOf<Lane> is_worth_it(Lane share) {
    return less(broadcast<Lane>(2.0f * half_step), share);
}

// Corrects the scales of blocks that a search has found, but not beyond the error of ggml's blocks.
template <class Refinement, class Lane, class Importance>
void correct_scale(const Lane *x, const Importance &importance, const uint8_t *ggml,
                   uint8_t *bytes) {
    using Type = typename Refinement::Type;
    constexpr int size = Type::block_size;
    Lane weights[size], columns[size], y[size];
    Refinement::weigh(x, importance, weights);
    importance.template load<size>(0, columns);
    decode_tile<Type>(ggml, y);
    const Lane limit = error_between<size>(x, y, weights) * clearly;
    decode_tile<Type>(bytes, y);
    const Lane share = correction_of<size>(x, y, columns, weights, limit);
    uint8_t candidate[Type::block_bytes * width_of<Lane>];
    memcpy(candidate, bytes, sizeof candidate);
    multiply_blocks<Type>(broadcast<Lane>(1.0f) + share, candidate);
    decode_tile<Type>(candidate, y);
    const auto below = less(error_between<size>(x, y, weights), limit);
    const auto allowed = and_(below, is_finite_error(limit));
    replace_blocks<Type::block_bytes>(and_(allowed, is_worth_it(share)), candidate, bytes);
}

}  // namespace
