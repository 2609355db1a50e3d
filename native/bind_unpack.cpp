// Python bindings of unpack.hpp: check every size, then run without the interpreter lock.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <vector>

#include "unpack.hpp"

namespace nb = nanobind;

namespace {

template <class Number>
using Vector = nb::ndarray<Number, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class Number>
using Matrix = nb::ndarray<Number, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

constexpr size_t MAX_BITS = 8, WORD_BITS = 32, TABLE = 256, MAX_BLOCK = 1 << 20;

void require(bool holds, const char *what) {
    if (!holds) throw std::invalid_argument(what);
}

void unpack(Matrix<const uint32_t> words, Matrix<uint8_t> codes, uint32_t bits,
            uint32_t words_of_group, const std::vector<uint32_t> &order, bool down) {
    const size_t values = order.size();
    require(bits > 0 && bits <= MAX_BITS && values > 0, "the bits do not fit into a byte");
    require(words_of_group > 0 && values * bits <= WORD_BITS * words_of_group,
            "the codes do not fit into the words");
    std::vector<uint32_t> sorted(order);
    std::sort(sorted.begin(), sorted.end());
    for (size_t n = 0; n < values; n++) require(sorted[n] == n, "the order is no permutation");
    const size_t axis = down ? 0 : 1;
    const size_t groups = words.shape(axis) / words_of_group;
    require(words.shape(axis) == groups * words_of_group, "the words are no whole groups");
    require(codes.shape(axis) == groups * values, "the codes are not as many as in the words");
    require(words.shape(1 - axis) == codes.shape(1 - axis), "the shapes do not match");
    const Packing packing{bits, static_cast<uint32_t>(values), words_of_group, order.data()};
    nb::gil_scoped_release unlocked;
    if (down)
        unpack_columns(words.data(), codes.data(), groups, words.shape(1), packing);
    else
        unpack_rows(words.data(), codes.data(), words.shape(0), groups, packing);
}

void center(Matrix<const uint8_t> codes, Matrix<const int16_t> zeros, Matrix<const float> scales,
            Matrix<float> numbers, size_t size, std::optional<Vector<const int64_t>> index) {
    const size_t rows = numbers.shape(0), width = numbers.shape(1), groups = scales.shape(1);
    const size_t stride = codes.shape(1);
    require(codes.shape(0) == rows && scales.shape(0) == rows && zeros.shape(0) == rows,
            "the rows do not match");
    require(stride >= width && zeros.shape(1) == groups, "the columns do not match");
    require(size > 0, "a group has no columns");
    if (index) {
        require(index->size() == width, "there must be a group for each column");
        for (size_t column = 0; column < width; column++)
            require(
                index->data()[column] >= 0 && static_cast<size_t>(index->data()[column]) < groups,
                "a column has no such group");
    } else {
        require(width / size + (width % size != 0) <= groups, "there are too few groups");
    }
    nb::gil_scoped_release unlocked;
    for (size_t row = 0; row < rows; row++) {
        const uint8_t *code = codes.data() + row * stride;
        const int16_t *zero = zeros.data() + row * groups;
        const float *scale = scales.data() + row * groups;
        float *number = numbers.data() + row * width;
        if (index)
            center_row_by(code, zero, scale, number, width, index->data());
        else
            center_row(code, zero, scale, number, width, size);
    }
}

void look_up(Matrix<const uint8_t> codes, Vector<const float> table, Matrix<const float> scales,
             Vector<const int64_t> places, Matrix<float> numbers, size_t size) {
    const size_t rows = codes.shape(0), width = codes.shape(1), groups = scales.shape(1);
    require(numbers.shape(0) == rows && numbers.shape(1) == width && places.size() == rows,
            "the shapes do not match");
    require(table.size() == TABLE, "the table needs a number for each byte");
    require(size > 0 && width / size + (width % size != 0) <= groups, "there are too few scales");
    for (size_t row = 0; row < rows; row++)
        require(
            places.data()[row] >= 0 && static_cast<size_t>(places.data()[row]) < scales.shape(0),
            "a row has no such scales");
    nb::gil_scoped_release unlocked;
    for (size_t row = 0; row < rows; row++)
        look_up_row(codes.data() + row * width, table.data(),
                    scales.data() + static_cast<size_t>(places.data()[row]) * groups,
                    numbers.data() + row * width, width, size);
}

void look_up_pairs(Vector<const uint8_t> pairs, Vector<const float> table,
                   Vector<const float> scales, Vector<float> numbers, size_t begin, size_t into,
                   size_t block) {
    const size_t count = numbers.size();
    require(table.size() == 16 && begin < 2 && into < block && block <= MAX_BLOCK,
            "the table, the start or the block does not fit");
    require(pairs.size() >= count / 2 + (count % 2 + begin + 1) / 2, "there are too few codes");
    require((count + into) / block + ((count + into) % block != 0) <= scales.size(),
            "there are too few scales");
    nb::gil_scoped_release unlocked;
    look_up_halves(pairs.data(), table.data(), scales.data(), numbers.data(), begin, into, count,
                   block);
}

}  // namespace

void bind_unpack(nb::module_ &module) {
    module.def("unpack", unpack, nb::arg("words"), nb::arg("codes").noconvert(), nb::arg("bits"),
               nb::arg("words_of_group"), nb::arg("order"), nb::arg("down"));
    module.def("center", center, nb::arg("codes"), nb::arg("zeros"), nb::arg("scales"),
               nb::arg("numbers").noconvert(), nb::arg("size"), nb::arg("index").none());
    module.def("look_up", look_up, nb::arg("codes"), nb::arg("table"), nb::arg("scales"),
               nb::arg("places"), nb::arg("numbers").noconvert(), nb::arg("size"));
    module.def("look_up_pairs", look_up_pairs, nb::arg("pairs"), nb::arg("table"),
               nb::arg("scales"), nb::arg("numbers").noconvert(), nb::arg("begin"), nb::arg("into"),
               nb::arg("block"));
}
