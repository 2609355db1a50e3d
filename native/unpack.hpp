// Decodes weights that other programs quantized: codes in words, tables of numbers, scales.
//
// One multiplication for each number and no addition, so that the result is that of any order.
#pragma once

#include <cstddef>
#include <cstdint>

// How words of 32 bits hold codes: `values` codes in each group of `words` words, and code n of a
// group is that of column `order[n]`.
struct Packing {
    uint32_t bits, values, words;
    const uint32_t *order;
};

// The code n of a group of words that stand `stride` apart.
inline uint8_t code_at(const uint32_t *group, size_t stride, const Packing &packing, uint32_t n) {
    const uint32_t bit = n * packing.bits, word = bit / 32, shift = bit % 32;
    uint32_t code = group[word * stride] >> shift;
    if (shift + packing.bits > 32) code |= group[(word + 1) * stride] << (32 - shift);
    return static_cast<uint8_t>(code & ((1u << packing.bits) - 1));
}

// The same if no code crosses words, one word after the other: `BITS` is known to the compiler.
template <uint32_t BITS>
inline void unpack_words(const uint32_t *words, uint8_t *codes, size_t count) {
    constexpr uint32_t values = 32 / BITS, mask = (1u << BITS) - 1;
    for (size_t position = 0; position < count; position++, codes += values)
        for (uint32_t n = 0; n < values; n++)
            codes[n] = static_cast<uint8_t>(words[position] >> (n * BITS) & mask);
}

// Whether the codes of a word are in the order of their columns.
inline bool is_plain(const Packing &packing) {
    if (packing.words != 1 || packing.values != 32 / packing.bits) return false;
    for (uint32_t n = 0; n < packing.values; n++)
        if (packing.order[n] != n) return false;
    return true;
}

// Codes along rows: each row of `groups` groups gives groups * values codes.
inline void unpack_rows(const uint32_t *words, uint8_t *codes, size_t rows, size_t groups,
                        const Packing &packing) {
    const size_t width = groups * packing.values;
    if (is_plain(packing) && packing.bits == 4) return unpack_words<4>(words, codes, rows * groups);
    if (is_plain(packing) && packing.bits == 8) return unpack_words<8>(words, codes, rows * groups);
    for (size_t row = 0; row < rows; row++) {
        const uint32_t *source = words + row * groups * packing.words;
        uint8_t *target = codes + row * width;
        for (size_t group = 0; group < groups; group++)
            for (uint32_t n = 0; n < packing.values; n++)
                target[group * packing.values + packing.order[n]] =
                    code_at(source + group * packing.words, 1, packing, n);
    }
}

// Codes along columns: `words` rows of `width` words give `values` rows of codes.
inline void unpack_columns(const uint32_t *words, uint8_t *codes, size_t groups, size_t width,
                           const Packing &packing) {
    for (size_t group = 0; group < groups; group++) {
        const uint32_t *source = words + group * packing.words * width;
        uint8_t *target = codes + group * packing.values * width;
        for (uint32_t n = 0; n < packing.values; n++) {
            uint8_t *row = target + packing.order[n] * width;
            for (size_t column = 0; column < width; column++)
                row[column] = code_at(source + column, width, packing, n);
        }
    }
}

// Numbers scale * (code - zero) of one row; `size` neighbours share a scale and a zero.
inline void center_row(const uint8_t *codes, const int16_t *zeros, const float *scales,
                       float *numbers, size_t width, size_t size) {
    for (size_t start = 0; start < width; start += size, zeros++, scales++) {
        const size_t stop = start + size < width ? start + size : width;
        const int32_t zero = *zeros;
        const float scale = *scales;
        for (size_t column = start; column < stop; column++)
            numbers[column] =
                scale * static_cast<float>(static_cast<int32_t>(codes[column]) - zero);
    }
}

// The same if `index` gives the group of each column.
inline void center_row_by(const uint8_t *codes, const int16_t *zeros, const float *scales,
                          float *numbers, size_t width, const int64_t *index) {
    for (size_t column = 0; column < width; column++) {
        const int64_t group = index[column];
        const int32_t centred = static_cast<int32_t>(codes[column]) - zeros[group];
        numbers[column] = scales[group] * static_cast<float>(centred);
    }
}

// The same for codes of 4 bits, the upper half of a byte first: `count` of them from `begin` on.
// `into` numbers of the first block lie before.
inline void look_up_halves(const uint8_t *pairs, const float *table, const float *scales,
                           float *numbers, size_t begin, size_t into, size_t count, size_t block) {
    const auto one = [&](size_t n, float scale) {
        const uint8_t pair = pairs[(n + begin) / 2];
        numbers[n] = table[(n + begin) % 2 ? pair & 15 : pair >> 4] * scale;
    };
    for (size_t n = 0; n < count;) {
        const size_t rest = block - (n + into) % block, stop = rest < count - n ? n + rest : count;
        const float scale = scales[(n + into) / block];
        if ((n + begin) % 2) one(n++, scale);
        for (; n + 1 < stop; n += 2) {
            const uint8_t pair = pairs[(n + begin) / 2];
            numbers[n] = table[pair >> 4] * scale;
            numbers[n + 1] = table[pair & 15] * scale;
        }
        if (n < stop) one(n++, scale);
    }
}

// Numbers table[code] * scale of one row; `size` neighbours share a scale.
inline void look_up_row(const uint8_t *codes, const float *table, const float *scales,
                        float *numbers, size_t width, size_t size) {
    for (size_t start = 0; start < width; start += size, scales++) {
        const size_t stop = start + size < width ? start + size : width;
        const float scale = *scales;
        for (size_t column = start; column < stop; column++)
            numbers[column] = table[codes[column]] * scale;
    }
}
