// F32, F64, I8, I16, I32, I64: one number per element, as in C.
#pragma once
#include "../codec.hpp"

namespace {

template <class Number>
struct Single {
    using Element = Number;
    static constexpr uint32_t block_size = 1, block_bytes = sizeof(Number);
};

template <class Number>
struct Whole : Single<Number> {
    // Powers of two, so exact as floats.
    static constexpr float least =
        -2.0f * static_cast<float>(Number{1} << (8 * sizeof(Number) - 2));

    static bool holds(float value) {
        return value >= least && value < -least &&
               static_cast<float>(static_cast<Number>(value)) == value;
    }
    static bool is_finite_element(Number) { return true; }
};

template <class Number>
struct Real : Single<Number> {
    static bool holds(float) { return true; }
    // ggml's validation reads a double as a float.
    static bool is_finite_element(Number value) { return is_finite(static_cast<float>(value)); }
};

struct F32 : Real<float> {
    static constexpr uint32_t id = 0;
    static constexpr const char *name = "F32";
};
struct F64 : Real<double> {
    static constexpr uint32_t id = 28;
    static constexpr const char *name = "F64";
};
struct I8 : Whole<int8_t> {
    static constexpr uint32_t id = 24;
    static constexpr const char *name = "I8";
};
struct I16 : Whole<int16_t> {
    static constexpr uint32_t id = 25;
    static constexpr const char *name = "I16";
};
struct I32 : Whole<int32_t> {
    static constexpr uint32_t id = 26;
    static constexpr const char *name = "I32";
};
struct I64 : Whole<int64_t> {
    static constexpr uint32_t id = 27;
    static constexpr const char *name = "I64";
};

template <class Type>
int64_t encode_plain(const float *src, uint8_t *dst, int64_t rows, int64_t width, const float *) {
    using Element = typename Type::Element;
    for (int64_t i = 0; i < rows * width; ++i) {
        if (!Type::holds(src[i])) return i;
        write(dst + i * sizeof(Element), static_cast<Element>(src[i]));
    }
    return nothing_wrong;
}

template <class Type>
void decode_plain(const uint8_t *src, float *dst, int64_t blocks, bool) {
    using Element = typename Type::Element;
    for (int64_t i = 0; i < blocks; ++i) {
        dst[i] = static_cast<float>(read<Element>(src + i * sizeof(Element)));
    }
}

template <class Type>
int64_t validate_plain(const uint8_t *src, int64_t blocks) {
    using Element = typename Type::Element;
    for (int64_t i = 0; i < blocks; ++i) {
        if (!Type::is_finite_element(read<Element>(src + i * sizeof(Element)))) return i;
    }
    return nothing_wrong;
}

template <class Type>
struct Rows<Type, decltype(void(sizeof(typename Type::Element)))> {
    static constexpr Codec functions() {
        Codec codec{};
        codec.encode = encode_plain<Type>;
        codec.decode = decode_plain<Type>;
        codec.validate = validate_plain<Type>;
        return codec;
    }
};

}  // namespace
