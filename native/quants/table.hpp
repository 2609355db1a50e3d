// The interface of one object of kernels: plain C structs, so that objects compiled for different
// instruction sets share no inline code.
#pragma once
#include <stdint.h>
#include <string.h>  // size_t

// Whether an encoder uses importance weights.
enum Weights : uint32_t { weights_unused = 0, weights_taken = 1, weights_required = 2 };

// The result of `encode` and `validate` if nothing is wrong.
constexpr int64_t nothing_wrong = -1;

// The codec of one tensor type. Buffers are contiguous, `src` and `dst` do not overlap.
struct Codec {
    uint32_t id;  // ggml's number
    const char *name;
    uint32_t block_size;  // elements
    uint32_t block_bytes;
    uint32_t row_prefix;  // bytes before the blocks of each row
    Weights weights;

    // Encodes `rows` rows of `width` elements, a multiple of the block size. `weights` has one
    // entry per column, or is null. Returns the first element that the type cannot hold (or
    // whose block ggml would abort on), or nothing_wrong. Null if the type has no encoder.
    int64_t (*encode)(const float *src, uint8_t *dst, int64_t rows, int64_t width,
                      const float *weights);

    // Decodes whole blocks; `streaming` stores bypass the caches. Null if Python decodes the type.
    void (*decode)(const uint8_t *src, float *dst, int64_t blocks, bool streaming);

    // Returns the first block that ggml's row validation rejects, or nothing_wrong. Null if ggml
    // does not know the type.
    int64_t (*validate)(const uint8_t *src, int64_t blocks);

    // The scalar port of the encoder, for one block; `weights` may be null. Only the portable
    // object has it: the others call it there for blocks that fill no tile.
    void (*encode_block)(const float *x, const float *weights, float row_mean_square,
                         uint8_t *block);
};

// Refines the blocks that a codec made: it searches for blocks with smaller weighted errors.
struct Refiner {
    uint32_t id;  // ggml's number of the type

    // `dst` holds the blocks that `encode` makes of the other arguments; `effort` is below
    // `effort_count`.
    void (*refine)(const float *src, uint8_t *dst, int64_t rows, int64_t width,
                   const float *weights, int effort);

    // The scalar port, as that of a codec: only the portable object has it.
    void (*refine_block)(const float *x, const float *weights, float row_mean_square, int effort,
                         uint8_t *block);
};

struct Refiners {
    uint32_t count;
    const Refiner *of;
};

constexpr int effort_count = 2;  // `better` and `best`

constexpr size_t most_columns = 256;  // of a block

// The levels of an element, in ascending order, and the values half way between them. Without such
// values, the levels are the numbers below `count`.
struct OrderedLevels {
    const float *levels, *bounds;
    size_t count;
};

// A block of columns of `rows` rows. `exact`, `targets`, `errors` and `places` (numbers of levels)
// hold `rows` numbers for each column, `scales` and `shifts` for each `group` of columns.
// `shares[i][j]` is the share of the error in column j that column i makes up for: the target grows
// by it. A cost grows by the weighted squares of what is missing to the targets.
struct FedBack {
    const float *exact;
    float *targets, *errors, *costs;
    uint8_t *places;
    const float *scales, *shifts, *shares, *weights;
    size_t columns, group, rows;
};

// All codecs compiled for one instruction set.
struct Table {
    const char *isa;
    uint32_t lanes;
    uint32_t count;
    const Codec *codecs;
    const Refiners *refiners;

    // Chooses levels one column after the other, errors fed back.
    void (*choose_levels)(const FedBack &block, const OrderedLevels &levels);
};
