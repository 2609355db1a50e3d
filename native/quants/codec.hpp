// Turns a type's functions for one block, or one tile, into codecs for whole rows.
//
// A type is a struct with `id`, `name`, `block_size`, `block_bytes` and
//   encode_block                 the scalar port, in ggml's order of operations;
//   encode_lanes                 a tile of one block per lane: tile[i] holds their elements i;
//   decode_lanes<Store>          `run` blocks, lanes along their elements;
//   is_valid                     what ggml's row validation asks of a block, unless it is finite
//                                halves `d` and, if the block has one, `minimum`;
// and, where it takes importance weights,
//   weights                      whether it can do without;
//   encode_weighted_block, encode_weighted_lanes   as above, with what importance.hpp hands out;
//   interleaved_tiles, encode_weighted_tiles           where it takes several tiles at once.
// The scalar port serves the blocks that fill no tile, arrays of unusual numbers, and the whole of
// the portable object. It is compiled in that object alone; the others call it there.
#pragma once
#include "lane.hpp"
#include "scalar_port.hpp"

namespace {

// A type's use of importance weights: its `weights`, or none if it has no such member.
template <class Type, class = void>
constexpr Weights weights_of = weights_unused;
template <class Type>
constexpr Weights weights_of<Type, decltype(void(Type::weights))> = Type::weights;

// Whether a type has an encoder; some are only decoded.
template <class Type, class = void>
constexpr bool has_encoder = false;
template <class Type>
constexpr bool has_encoder<Type, decltype(void(&Type::encode_block))> = true;

// Whether a type has a decoder; some are decoded in Python.
template <class Type, class = void>
constexpr bool has_decoder = false;
template <class Type>
constexpr bool has_decoder<Type, decltype(void(&Type::template decode_lanes<Cached>))> = true;

// The scalar port for one block.
template <class Type>
void encode_scalar(const float *x, const float *weights, float row_mean_square, uint8_t *block) {
    constexpr Weights use = weights_of<Type>;
    if constexpr (use != weights_unused) {
        if (weights) {
            const BlockImportance importance{weights, row_mean_square};
            return Type::encode_weighted_block(x, importance, block);
        }
    }
    if constexpr (use != weights_required) Type::encode_block(x, block);
}

template <class Type>
void encode_plain_rows(const float *src, uint8_t *dst, int64_t blocks) {
    constexpr int64_t size = Type::block_size;
    int64_t block = 0;
    if constexpr (!portable) {
        for (; block + lanes <= blocks; block += lanes) {
            Floats tile[size];
            load_tile<size>(src + block * size, tile);
            Type::encode_lanes(tile, dst + block * Type::block_bytes);
        }
    }
    src += block * size;
    dst += block * Type::block_bytes;
    if constexpr (portable) {
        for (int64_t i = 0; i < blocks; ++i) {
            Type::encode_block(src + i * size, dst + i * Type::block_bytes);
        }
    } else if (block < blocks) {
        portable_codec(Type::id).encode(src, dst, 1, (blocks - block) * size, nullptr);
    }
}

// How many tiles of blocks with importance a type takes at once: with small blocks, several tiles
// hide the latency of their sums.
template <class Type, class = void>
constexpr int interleaved_tiles = 1;
template <class Type>
constexpr int interleaved_tiles<Type, decltype(void(Type::interleaved_tiles))> =
    Type::interleaved_tiles;

// Encodes blocks from `block` on while they fill `Tiles` tiles; returns the next block.
template <class Type, int Tiles, class Walk>
int64_t encode_weighted_tiles(const float *src, uint8_t *dst, int64_t block, int64_t blocks,
                              Walk &walk) {
    constexpr int size = Type::block_size;
    for (; block + Tiles * lanes <= blocks; block += Tiles * lanes) {
        Floats tiles[Tiles * size];
        LaneImportance importance[Tiles];
        for (int i = 0; i < Tiles; ++i) {
            load_tile<size>(src + (block + i * lanes) * size, tiles + i * size);
            importance[i] = walk.template next_tile<size>();
        }
        uint8_t *to = dst + block * Type::block_bytes;
        if constexpr (Tiles > 1) {
            Type::encode_weighted_tiles(tiles, importance, to);
        } else {
            Type::encode_weighted_lanes(tiles, importance[0], to);
        }
    }
    return block;
}

template <class Type>
void encode_weighted_rows(const float *src, uint8_t *dst, int64_t rows, int64_t width,
                          const float *weights) {
    constexpr int size = Type::block_size;
    const int64_t blocks = rows * (width / size);
    ImportanceWalk<weighs_by_row<Type>> walk(src, rows, width, weights);
    int64_t block = 0;
    if constexpr (!portable) {
        constexpr int interleaved = interleaved_tiles<Type>;
        if constexpr (interleaved > 1) {
            block = encode_weighted_tiles<Type, interleaved>(src, dst, block, blocks, walk);
        }
        block = encode_weighted_tiles<Type, 1>(src, dst, block, blocks, walk);
    }
    for (; block < blocks; ++block) {
        const BlockImportance own = walk.template next_block<size>();
        uint8_t *to = dst + block * Type::block_bytes;
        if constexpr (portable) {
            Type::encode_weighted_block(src + block * size, own, to);
        } else {
            portable_codec(Type::id).encode_block(src + block * size, own.weights,
                                                  own.row_mean_square, to);
        }
    }
}

template <class Type>
int64_t encode_rows(const float *src, uint8_t *dst, int64_t rows, int64_t width,
                    const float *weights) {
    constexpr Weights use = weights_of<Type>;
    if constexpr (use != weights_unused) {
        if (weights) encode_weighted_rows<Type>(src, dst, rows, width, weights);
    }
    if constexpr (use != weights_required) {
        if (use == weights_unused || !weights) {
            encode_plain_rows<Type>(src, dst, rows * (width / Type::block_size));
        }
    }
    return nothing_wrong;
}

// Whether all numbers are below 1e10 in size, and none is a NaN: its bits are larger.
inline bool all_usual(const float *numbers, int64_t count) {
    Ints largest{};
    for (int64_t i = 0; i < count; i += lanes) {
        largest = maximum(largest, bits_of(absolute(load(numbers + i))));
    }
    return all(greater(bits_of(broadcast(1e10f)), largest));
}

inline bool any_negative(const float *numbers, int64_t count) {
    bool is_negative = false;
    for (int64_t i = 0; i < count; ++i) is_negative |= numbers[i] < 0.0f;
    return is_negative;
}

// The bytes before the blocks of each row. A type with a `row_prefix` is encoded row by row.
template <class Type, class = void>
constexpr uint32_t row_prefix_of = 0;
template <class Type>
constexpr uint32_t row_prefix_of<Type, decltype(void(Type::row_prefix))> = Type::row_prefix;

template <class Type>
int64_t row_bytes_of(int64_t width) {
    return row_prefix_of<Type> + width / Type::block_size * Type::block_bytes;
}

// How many rows fill whole tiles, or are summed up in lanes.
template <class Type>
int64_t rows_of_whole_tiles(int64_t width) {
    const int64_t blocks = width / Type::block_size, twos = blocks & -blocks;
    if (weighs_by_row<Type> || row_prefix_of<Type> > 0) return lanes;
    return lanes / (twos < lanes ? twos : lanes);
}

// Lanes search among finite numbers whose sums of products stay finite; other rows are the scalar
// port's. A few rows are checked at once, so that they stay in a near cache. What searches nothing
// needs no check: types without importance, and the plain rules of Q4_0 to Q5_1.
template <class Type,
          int64_t (*EncodeRows)(const float *, uint8_t *, int64_t, int64_t, const float *)>
int64_t encode(const float *src, uint8_t *dst, int64_t rows, int64_t width, const float *weights) {
    constexpr bool may_search = !portable && weights_of<Type> != weights_unused;
    if (!may_search || (weighs_by_row<Type> && !weights)) {
        return EncodeRows(src, dst, rows, width, weights);
    }
    const bool are_usual = !weights || (all_usual(weights, width) && !any_negative(weights, width));
    const int64_t some = rows_of_whole_tiles<Type>(width);
    for (int64_t row = 0; row < rows; row += some) {
        const int64_t count = rows - row < some ? rows - row : some;
        const float *x = src + row * width;
        uint8_t *to = dst + row * row_bytes_of<Type>(width);
        const bool searches = are_usual && all_usual(x, count * width);
        const auto encode_some = searches ? EncodeRows : portable_codec(Type::id).encode;
        const int64_t wrong = encode_some(x, to, count, width, weights);
        if (wrong != nothing_wrong) return row * width + wrong;
    }
    return nothing_wrong;
}

// How many blocks decode_lanes takes: one, or sixteen of a single element.
template <class Type>
constexpr int run = Type::block_size == 1 ? 16 : 1;

template <class Type, class Store>
int64_t decode_runs(const uint8_t *src, float *dst, int64_t blocks) {
    int64_t block = 0;
    for (; block + run<Type> <= blocks; block += run<Type>) {
        Type::template decode_lanes<Store>(src + block * Type::block_bytes,
                                           dst + block * Type::block_size);
    }
    return block;
}

template <class Type>
void decode(const uint8_t *src, float *dst, int64_t blocks, bool streaming) {
    int64_t block;
    const bool aligned = reinterpret_cast<uintptr_t>(dst) % sizeof(Floats) == 0;
    if (streaming && aligned) {
        block = decode_runs<Type, Streamed>(src, dst, blocks);
        finish_streaming();
    } else {
        block = decode_runs<Type, Cached>(src, dst, blocks);
    }
    if constexpr (run < Type >> 1) {
        for (; block < blocks; ++block)
            Type::decode_block(src + block * Type::block_bytes, dst + block);
    }
}

template <class Type, class = void>
constexpr bool has_rule_of_validity = false;
template <class Type>
constexpr bool has_rule_of_validity<Type, decltype(void(&Type::is_valid))> = true;
template <class Block, class = void>
constexpr bool has_minimum = false;
template <class Block>
constexpr bool has_minimum<Block, decltype(void(Block::minimum))> = true;

template <class Type>
bool is_valid(const uint8_t *bytes) {
    if constexpr (has_rule_of_validity<Type>) {
        return Type::is_valid(bytes);
    } else {
        const auto &block = view<typename Type::Block>(bytes);
        if constexpr (has_minimum<typename Type::Block>) {
            if (!is_finite_half(block.minimum)) return false;
        }
        return is_finite_half(block.d);
    }
}

template <class Type>
int64_t validate(const uint8_t *src, int64_t blocks) {
    for (int64_t block = 0; block < blocks; ++block) {
        if (!is_valid<Type>(src + block * Type::block_bytes)) return block;
    }
    return nothing_wrong;
}

// How rows of a type are coded. Families of types with other ways specialize this.
template <class Type, class = void>
struct Rows {
    static constexpr Codec functions() {
        Codec codec{};
        if constexpr (has_encoder<Type>) {
            codec.encode = encode<Type, encode_rows<Type>>;
            if constexpr (portable) codec.encode_block = encode_scalar<Type>;
        }
        if constexpr (has_decoder<Type>) {
            codec.decode = decode<Type>;
            codec.validate = validate<Type>;
        }
        return codec;
    }
};

template <class Type>
constexpr Codec codec() {
    Codec codec = Rows<Type>::functions();
    codec.id = Type::id;
    codec.name = Type::name;
    codec.block_size = Type::block_size;
    codec.block_bytes = Type::block_bytes;
    codec.row_prefix = row_prefix_of<Type>;
    codec.weights = weights_of<Type>;
    return codec;
}

}  // namespace
