// Python bindings of the header scanner: buffers in, packed tables out.
#include <nanobind/nanobind.h>

#include <cstring>

#include "scan.hpp"

namespace nb = nanobind;

namespace {

using ggufkit::Form;
using ggufkit::Span;

// Holds a view of any contiguous bytes-like object, so that a memory map cannot be closed
// underneath the scan. nb::ndarray would refuse read-only bytes.
class Buffer {
public:
    explicit Buffer(nb::handle data) {
        if (PyObject_GetBuffer(data.ptr(), &view_, PyBUF_SIMPLE) != 0) throw nb::python_error();
    }
    Buffer(const Buffer &) = delete;
    Buffer &operator=(const Buffer &) = delete;
    ~Buffer() { PyBuffer_Release(&view_); }

    Span span() const {
        return {static_cast<const uint8_t *>(view_.buf), static_cast<uint64_t>(view_.len)};
    }

private:
    Py_buffer view_;
};

// Runs `work` without the GIL; a Problem means that the bytes changed since the scan.
template <class Work>
auto unlocked(Work work) {
    try {
        nb::gil_scoped_release release;
        return work();
    } catch (const ggufkit::Problem &) {
        throw nb::value_error("moved");
    }
}

template <class Record>
nb::bytes packed(const std::vector<Record> &records) {
    return nb::bytes(reinterpret_cast<const char *>(records.data()),
                     records.size() * sizeof(Record));
}

nb::list listed(const std::vector<ggufkit::Problem> &problems) {
    nb::list list;
    for (const ggufkit::Problem &problem : problems)
        list.append(nb::make_tuple(problem.rule, problem.offset, problem.a, problem.b));
    return list;
}

nb::tuple scan(nb::handle data, uint64_t total) {
    const Buffer buffer(data);
    const ggufkit::Header header = unlocked([&] { return ggufkit::scan(buffer.span(), total); });
    return nb::make_tuple(header.version, header.big_endian, header.kv_count, header.tensor_count,
                          header.end, packed(header.keys), packed(header.tensors),
                          listed(header.problems));
}

nb::object lack(nb::handle data, uint64_t total) {
    const Buffer buffer(data);
    const ggufkit::Header header = unlocked([&] { return ggufkit::scan(buffer.span(), total); });
    const ggufkit::Lack &lack = header.lack;
    if (lack.least == 0) return nb::none();
    const uint64_t tensors = header.tensor_count - header.tensors.size();
    const uint64_t keys = header.kv_count - header.keys.size();
    const uint64_t at = header.keys.empty() ? 0 : header.keys.back().end;
    return nb::make_tuple(lack.least, at, keys, tensors, lack.array_at, lack.index, lack.count);
}

// Python's decoder is fast for ASCII and slow to start for other text. Three quarters of a
// vocabulary's short tokens are other text: pass those as code points.
PyObject *decoded(const uint8_t *text, uint64_t length) {
    constexpr uint64_t SHORT = 64;
    if (sizeof(wchar_t) == sizeof(uint32_t) && length <= SHORT && length > 0 && text[0] >= 0x80) {
        uint32_t points[SHORT];
        const int64_t count = ggufkit::code_points(text, length, points);
        wchar_t wide[SHORT];
        if (count > 0) {
            std::memcpy(wide, points, static_cast<size_t>(count) * sizeof *points);
            return PyUnicode_FromWideChar(wide, count);
        }
    }
    return PyUnicode_DecodeUTF8(reinterpret_cast<const char *>(text),
                                static_cast<Py_ssize_t>(length), "surrogateescape");
}

nb::list strings(nb::handle data, uint64_t at, uint64_t count, bool wide, bool big_endian) {
    const Buffer buffer(data);
    const auto index = unlocked(
        [&] { return ggufkit::string_index(buffer.span(), at, count, Form{wide, big_endian}); });
    const uint8_t *text = buffer.span().data;
    const uint64_t field = wide ? 8 : 4;
    nb::list list = nb::steal<nb::list>(PyList_New(static_cast<Py_ssize_t>(count)));
    if (!list.is_valid()) throw nb::python_error();
    for (uint64_t i = 0; i < count; ++i) {
        const uint64_t start = index[i] + field;
        PyObject *string = decoded(text + start, index[i + 1] - start);
        if (string == nullptr) throw nb::python_error();
        PyList_SetItem(list.ptr(), static_cast<Py_ssize_t>(i), string);
    }
    return list;
}

nb::bytes string_index(nb::handle data, uint64_t at, uint64_t count, bool wide, bool big_endian) {
    const Buffer buffer(data);
    return packed(unlocked(
        [&] { return ggufkit::string_index(buffer.span(), at, count, Form{wide, big_endian}); }));
}

nb::bytes array_index(nb::handle data, uint64_t at, uint64_t count, bool wide, bool big_endian) {
    const Buffer buffer(data);
    return packed(unlocked(
        [&] { return ggufkit::array_index(buffer.span(), at, count, Form{wide, big_endian}); }));
}

int64_t utf8_problem(nb::handle data, uint64_t at, uint64_t count, bool wide, bool big_endian) {
    const Buffer buffer(data);
    return unlocked(
        [&] { return ggufkit::utf8_problem(buffer.span(), at, count, Form{wide, big_endian}); });
}

bool all_zero(nb::handle data, uint64_t start, uint64_t stop) {
    const Buffer buffer(data);
    const Span file = buffer.span();
    if (start > stop || stop > file.size) throw nb::value_error("moved");
    return unlocked([&] { return ggufkit::all_zero(file.data + start, stop - start); });
}

}  // namespace

void bind_scan(nb::module_ &module) {
    using namespace nb::literals;
    module.attr("MAX_ARRAY_DEPTH") = ggufkit::MAX_ARRAY_DEPTH;
    module.attr("MAX_SCAN_DIMS") = ggufkit::MAX_SCAN_DIMS;
    module.attr("MAX_PROBLEMS") = ggufkit::MAX_PROBLEMS;
    module.def(
        "scan", scan, "data"_a, "total"_a = 0,
        "Validate and index the header of a GGUF file of `total` bytes, or of all of `data`.");
    module.def(
        "lack", lack, "data"_a, "total"_a,
        "What the beginning of a file of `total` bytes lacks of its header; None if nothing.");
    module.def("strings", strings, "data"_a, "at"_a, "count"_a, "wide"_a, "big_endian"_a,
               "Decode consecutive strings; invalid UTF-8 becomes surrogate escapes.");
    module.def("string_index", string_index, "data"_a, "at"_a, "count"_a, "wide"_a, "big_endian"_a,
               "Offsets of the length fields, and of the end, as native u64.");
    module.def("array_index", array_index, "data"_a, "at"_a, "count"_a, "wide"_a, "big_endian"_a,
               "One record for each array inside an array.");
    module.def("utf8_problem", utf8_problem, "data"_a, "at"_a, "count"_a, "wide"_a, "big_endian"_a,
               "Index of the first string that is not UTF-8, or -1.");
    module.def("all_zero", all_zero, "data"_a, "start"_a, "stop"_a,
               "Whether all bytes from start to stop are zero.");
}
