// Python bindings of the kernels: check every size, then run without the interpreter lock.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>

#include "quants/dispatch.hpp"
#include "quants/types/fp4.hpp"
#include "quants/types/grids.hpp"
#include "quants/types/iq4.hpp"

namespace nb = nanobind;

namespace {

template <class Number>
using Buffer = nb::ndarray<Number, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using FloatsIn = Buffer<const float>;
using FloatsOut = Buffer<float>;
using BytesIn = Buffer<const uint8_t>;
using BytesOut = Buffer<uint8_t>;

void require(bool holds, const char *what) {
    if (!holds) throw std::invalid_argument(what);
}

template <class Array>
void require_aligned(const Array &array) {
    require(reinterpret_cast<uintptr_t>(array.data()) % sizeof(float) == 0,
            "the floats are not aligned to 4 bytes");
}

const Codec &codec_of(const std::string &isa, uint32_t id) {
    const Codec *codec = find_codec(table_named(isa), id);
    if (!codec) throw std::invalid_argument("no codec for tensor type " + std::to_string(id));
    return *codec;
}

// Compares block counts, not sizes: a product could wrap.
void require_matching(const Codec &codec, size_t elements, size_t bytes) {
    require(elements % codec.block_size == 0 && bytes % codec.block_bytes == 0,
            "the buffers do not hold whole blocks");
    require(elements / codec.block_size == bytes / codec.block_bytes,
            "the buffers do not hold equally many blocks");
}

// No product wraps: the floats of all rows are in memory, or there are no rows.
void require_rows(const Codec &codec, size_t rows, size_t width, size_t bytes) {
    const size_t row_bytes = codec.row_prefix + width / codec.block_size * codec.block_bytes;
    require(bytes == rows * row_bytes, "the buffers do not hold equally many blocks");
}

// Encodes rows of floats as a type, after a check of all sizes.
struct RowEncoder {
    const Codec &codec;
    const Refiner *refiner;
    const float *weights;
    int64_t width;
    int effort;

    RowEncoder(uint32_t id, size_t elements, size_t row_width, size_t bytes,
               const std::optional<FloatsIn> &row_weights, const std::string &isa, int search)
        : codec(codec_of(isa, id)),
          refiner(search > 0 ? find_refiner(table_named(isa), id) : nullptr),
          weights(row_weights ? row_weights->data() : nullptr),
          width(static_cast<int64_t>(row_width)),
          effort(search) {
        require(effort >= 0 && effort <= effort_count, "there is no such effort");
        require(effort == 0 || refiner, "the tensor type has no search");
        require(codec.encode != nullptr, "the tensor type has no encoder");
        require(codec.weights != weights_required || weights, "the tensor type requires weights");
        require(elements % codec.block_size == 0, "the floats do not fill whole blocks");
        require(row_width > 0 && row_width % codec.block_size == 0 && elements % row_width == 0,
                "the width does not fit");
        require_rows(codec, elements / row_width, row_width, bytes);
        require(!row_weights || row_weights->size() == row_width,
                "there must be one weight per column");
        if (row_weights) require_aligned(*row_weights);
    }

    int64_t operator()(const float *src, uint8_t *dst, int64_t rows) const {
        const int64_t bad = codec.encode(src, dst, rows, width, weights);
        if (refiner && bad == nothing_wrong) {
            refiner->refine(src, dst, rows, width, weights, effort - 1);
        }
        return bad;
    }
};

int64_t encode(uint32_t id, FloatsIn src, BytesOut dst, size_t width,
               std::optional<FloatsIn> weights, const std::string &isa, int effort) {
    const RowEncoder encoder(id, src.size(), width, dst.size(), weights, isa, effort);
    require_aligned(src);
    nb::gil_scoped_release unlocked;
    return encoder(src.data(), dst.data(), static_cast<int64_t>(src.size() / width));
}

void decode(uint32_t id, BytesIn src, FloatsOut dst, bool streaming, const std::string &isa) {
    const Codec &codec = codec_of(isa, id);
    require(codec.decode != nullptr, "the tensor type has no decoder");
    require_matching(codec, dst.size(), src.size());
    require_aligned(dst);
    const auto blocks = static_cast<int64_t>(src.size() / codec.block_bytes);
    nb::gil_scoped_release unlocked;
    codec.decode(src.data(), dst.data(), blocks, streaming);
}

bool all_finite(const float *numbers, size_t count) {
    uint32_t carries = 0;
    for (size_t i = 0; i < count; ++i) {
        uint32_t bits;
        memcpy(&bits, numbers + i, sizeof bits);
        carries |= (bits & 0x7fffffff) + 0x00800000;  // into bit 31 from an exponent of ones
    }
    return carries < 0x80000000;
}

bool requantize(uint32_t id, BytesIn src, uint32_t target, BytesOut dst, size_t width,
                std::optional<FloatsIn> weights, FloatsOut tile, const std::string &isa,
                int effort) {
    const Codec &source = codec_of(isa, id);
    require(source.decode != nullptr, "the tensor type has no decoder");
    require_aligned(tile);
    require(width > 0 && width % source.block_size == 0, "the width does not fit");
    const size_t row_blocks = width / source.block_size;
    const size_t row_bytes = row_blocks * source.block_bytes;
    const size_t rows = src.size() / row_bytes, step = tile.size() / width;
    require(src.size() % row_bytes == 0 && step > 0, "the buffers do not hold whole rows");
    const RowEncoder encoder(target, rows * width, width, dst.size(), weights, isa, effort);
    nb::gil_scoped_release unlocked;
    for (size_t row = 0; row < rows; row += step) {
        const size_t count = std::min(step, rows - row);
        source.decode(src.data() + row * row_bytes, tile.data(),
                      static_cast<int64_t>(count * row_blocks), false);
        if (encoder.codec.block_size > 1 && !all_finite(tile.data(), count * width)) return false;
        uint8_t *to = dst.data() + dst.size() / rows * row;
        if (encoder(tile.data(), to, static_cast<int64_t>(count)) != nothing_wrong) return false;
    }
    return true;
}

int64_t validate(uint32_t id, BytesIn src, const std::string &isa) {
    const Codec &codec = codec_of(isa, id);
    require(codec.validate != nullptr, "the tensor type has no rule of validity");
    require(src.size() % codec.block_bytes == 0, "the buffer does not hold whole blocks");
    const auto blocks = static_cast<int64_t>(src.size() / codec.block_bytes);
    nb::gil_scoped_release unlocked;
    return codec.validate(src.data(), blocks);
}

void choose_levels(FloatsIn exact, FloatsOut targets, FloatsOut errors, FloatsOut costs,
                   BytesOut places, FloatsIn scales, FloatsIn shifts, FloatsIn shares,
                   FloatsIn weights, FloatsIn levels, FloatsIn bounds, const std::string &isa) {
    const size_t columns = weights.size(), rows = costs.size(), size = exact.size();
    require(columns > 0 && columns <= most_columns, "the block has too many columns");
    require(rows > 0 && size == columns * rows && targets.size() == size &&
                errors.size() == size && places.size() == size &&
                shares.size() == columns * columns,
            "the arrays of the block do not fit together");
    const size_t groups = scales.size() / rows;
    require(groups > 0 && columns % groups == 0 && scales.size() == groups * rows &&
                shifts.size() == scales.size(),
            "the scales do not fit the block");
    require(levels.size() > 0 && (bounds.size() == 0 || bounds.size() + 1 == levels.size()),
            "the bounds do not fit the levels");
    const FedBack block{exact.data(),   targets.data(), errors.data(), costs.data(),
                        places.data(),  scales.data(),  shifts.data(), shares.data(),
                        weights.data(), columns,        columns / groups, rows};
    const OrderedLevels ordered{levels.data(), bounds.size() ? bounds.data() : nullptr,
                                levels.size()};
    const Table &table = table_named(isa);
    nb::gil_scoped_release unlocked;
    table.choose_levels(block, ordered);
}

nb::list instruction_sets() {
    nb::list names;
    for (const Table *table : runnable_tables()) names.append(table->isa);
    return names;
}

nb::list codecs(const std::string &isa) {
    const Table &table = table_named(isa);
    nb::list rows;
    for (uint32_t i = 0; i < table.count; ++i) {
        const Codec &codec = table.codecs[i];
        rows.append(nb::make_tuple(codec.id, codec.name, codec.block_size, codec.block_bytes,
                                   codec.encode != nullptr, static_cast<int>(codec.weights)));
    }
    return rows;
}

nb::list refinable() {
    nb::list ids;
    const Refiners &refiners = *runnable_tables().back()->refiners;
    for (uint32_t i = 0; i < refiners.count; ++i) ids.append(refiners.of[i].id);
    return ids;
}

// The table as bytes, and how many levels an entry has.
template <class Table>
nb::tuple levels_of(const Table &table, size_t width) {
    return nb::make_tuple(nb::bytes(reinterpret_cast<const char *>(&table), sizeof table), width);
}

nb::dict level_tables() {
    nb::dict tables;
    tables["iq4_levels"] = levels_of(iq4_levels, 1);
    tables["fp4_levels"] = levels_of(fp4_levels, 1);
    tables["iq1"] = levels_of(iq1_grid.points, 8);
    tables["iq2_xxs"] = levels_of(iq2_xxs_grid.points, 8);
    tables["iq2_xs"] = levels_of(iq2_xs_grid.points, 8);
    tables["iq2_s"] = levels_of(iq2_s_grid.points, 8);
    tables["iq3_xxs"] = levels_of(iq3_xxs_grid.points, 4);
    tables["iq3_s"] = levels_of(iq3_s_grid.points, 4);
    return tables;
}

}  // namespace

void bind_quants(nb::module_ &module) {
    module.def("instruction_sets", &instruction_sets,
               "Names of the instruction sets that this machine runs, the fastest first.");
    module.def("codecs", &codecs, nb::arg("isa"),
               "Rows (id, name, block size, block bytes, can encode, weights) of a table; "
               "weights: 0 unused, 1 taken, 2 required.");
    module.def(
        "encode", &encode, nb::arg("id"), nb::arg("src").noconvert(), nb::arg("dst").noconvert(),
        nb::arg("width"), nb::arg("weights").noconvert().none(), nb::arg("isa"),
        nb::arg("effort") = 0,
        "Encode float32 rows; return the first element that does not fit, or -1. `effort` is 0 for "
        "ggml's blocks, 1 or 2 for a search for better ones.");
    module.def("level_tables", &level_tables,
               "Tables of signed bytes that types look up, and the levels of an entry, by name.");
    module.def("refinable", &refinable, "Ids of the types that have a search.");
    module.def("decode", &decode, nb::arg("id"), nb::arg("src").noconvert(),
               nb::arg("dst").noconvert(), nb::arg("streaming"), nb::arg("isa"),
               "Decode blocks to float32, past the caches where `streaming`.");
    module.def("requantize", &requantize, nb::arg("id"), nb::arg("src").noconvert(),
               nb::arg("target"), nb::arg("dst").noconvert(), nb::arg("width"),
               nb::arg("weights").noconvert().none(), nb::arg("tile").noconvert(), nb::arg("isa"),
               nb::arg("effort") = 0,
               "Decode rows, as many at once as `tile` holds, and encode them as another type; "
               "return whether it holds all numbers.");
    module.def("validate", &validate, nb::arg("id"), nb::arg("src").noconvert(), nb::arg("isa"),
               "Return the first block that ggml's row validation refuses, or -1.");
    module.def("choose_levels", &choose_levels, nb::arg("exact").noconvert(),
               nb::arg("targets").noconvert(), nb::arg("errors").noconvert(),
               nb::arg("costs").noconvert(), nb::arg("places").noconvert(),
               nb::arg("scales").noconvert(), nb::arg("shifts").noconvert(),
               nb::arg("shares").noconvert(), nb::arg("weights").noconvert(),
               nb::arg("levels").noconvert(), nb::arg("bounds").noconvert(), nb::arg("isa"),
               "Choose the levels of a block's columns one after the other, errors fed back.");
    module.def("last_level_cache_bytes", &last_level_cache_bytes,
               "Size of the last-level cache in bytes.");
}
