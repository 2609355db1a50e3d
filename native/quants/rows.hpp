// Encodes types whose rows begin with a scale: the blocks of a row depend on each other, so each
// lane has a row.
#pragma once
#include "codec.hpp"

namespace {

// Rows that are encoded at once: one, or one per lane.
template <class Lane>
struct LaneRows {
    static constexpr int count = is_scalar<Lane> ? 1 : lanes;
    const float *elements[count];
    uint8_t *packed[count];
    int64_t width;
    const float *weights;  // one per column, or null

    // If there are fewer rows than lanes, the last row is encoded several times.
    LaneRows(const float *src, uint8_t *dst, int64_t rows, int64_t width, int64_t row_bytes,
             const float *weights)
        : width(width), weights(weights) {
        for (int lane = 0; lane < count; ++lane) {
            const int64_t row = lane < rows ? lane : rows - 1;
            elements[lane] = src + row * width;
            packed[lane] = dst + row * row_bytes;
        }
    }

    template <int Count>
    KERNEL_INLINE void load(int64_t column, Lane *x) const {
        if constexpr (is_scalar<Lane>) {
            memcpy(x, elements[0] + column, Count * sizeof *x);
        } else {
            for (int i = 0; i < Count; i += lanes) load_square(elements, column + i, x + i);
        }
    }

    // Writes the low bits of each lane's number as a `Number` at an offset in its row.
    template <class Number, class Value>
    KERNEL_INLINE void put(int64_t offset, Value value) const {
        int32_t values[count];
        memcpy(values, &value, sizeof values);
        for (int lane = 0; lane < count; ++lane) {
            write(packed[lane] + offset, static_cast<Number>(values[lane]));
        }
    }

    KERNEL_INLINE Lane get(int64_t offset) const {
        float values[count];
        for (int lane = 0; lane < count; ++lane) {
            values[lane] = read<float>(packed[lane] + offset);
        }
        Lane value;
        memcpy(&value, values, sizeof value);
        return value;
    }
};

template <class Type, class Lane>
int64_t encode_lane_rows(const float *src, uint8_t *dst, int64_t rows, int64_t width,
                         const float *weights) {
    const int64_t row_bytes = row_bytes_of<Type>(width);
    for (int64_t row = 0; row < rows; row += LaneRows<Lane>::count) {
        Type::encode(LaneRows<Lane>(src + row * width, dst + row * row_bytes, rows - row, width,
                                    row_bytes, weights));
    }
    return nothing_wrong;
}

template <class Type>
struct Rows<Type, decltype(void(Type::row_prefix))> {
    static constexpr Codec functions() {
        Codec codec{};
        if constexpr (portable) {
            codec.encode = encode<Type, encode_lane_rows<Type, float>>;
        } else {
            codec.encode = encode<Type, encode_lane_rows<Type, Floats>>;
        }
        return codec;
    }
};

}  // namespace
