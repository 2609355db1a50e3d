// The header scanner: validates and indexes the header of a GGUF file without copying from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ggufkit {

constexpr uint32_t MAX_ARRAY_DEPTH = 32;  // no model nests deeper, and each level costs stack
constexpr uint32_t MAX_SCAN_DIMS = 32;    // NumPy 1's limit, so that every shape can be made
constexpr size_t MAX_PROBLEMS = 1000;     // a hostile file must not fill memory with findings
constexpr uint32_t NO_ELEMENT_TYPE = 0xffffffff;

struct Span {
    const uint8_t *data;
    uint64_t size;
};

// What a scan of the beginning of a file lacks: all bytes before `least` at least. If it ended in
// an array of strings, `index` of its `count` strings were there, from `array_at` on.
struct Lack {
    uint64_t least = 0, array_at = 0, index = 0, count = 0;
};

// How lengths and numbers are stored: in 8 bytes (wide) or, in version 1, in 4.
struct Form {
    bool wide;
    bool big_endian;
};

// What is wrong at `offset`; src/ggufkit/rules/rules.py documents `a` and `b` of each rule.
struct Problem {
    const char *rule;
    uint64_t offset, a, b;
};

// One key-value. For an array, `value` is the first element's first byte.
struct Key {
    uint64_t key_at, key_len;
    uint32_t value_type, element_type;
    uint64_t count, value_at, end;
};
static_assert(sizeof(Key) == 48, "Python reads this record");

struct Tensor {
    uint64_t name_at, name_len, dims_at, width, elements, offset;
    uint32_t n_dims, type;
};
static_assert(sizeof(Tensor) == 56, "Python reads this record");

// An array inside an array of arrays.
struct InnerArray {
    uint32_t element_type, pad;
    uint64_t count, value_at, end;
};
static_assert(sizeof(InnerArray) == 32, "Python reads this record");

struct Header {
    uint32_t version = 0;
    bool big_endian = false;
    uint64_t kv_count = 0, tensor_count = 0, end = 0;
    std::vector<Key> keys;
    std::vector<Tensor> tensors;
    std::vector<Problem> problems;
    Lack lack;
};

// Never throws for faults in the file: the last problem says why the scan stopped. `file` may be
// the beginning of a file of `total` bytes: where it ends too early, `lack` says so, not a problem.
Header scan(Span file, uint64_t total);
inline Header scan(Span file) { return scan(file, file.size); }

// The functions below throw a Problem if `file` does not hold the requested data.

// Offsets of the length fields of `count` strings from `at`, and of the byte after the last.
std::vector<uint64_t> string_index(Span file, uint64_t at, uint64_t count, Form form);

std::vector<InnerArray> array_index(Span file, uint64_t at, uint64_t count, Form form);

// Index of the first string that is not UTF-8, or -1.
int64_t utf8_problem(Span file, uint64_t at, uint64_t count, Form form);

// Decodes UTF-8 to code points, at most one for each byte; -1 if it is invalid.
int64_t code_points(const uint8_t *text, uint64_t length, uint32_t *points);

bool all_zero(const uint8_t *bytes, uint64_t count);

}  // namespace ggufkit
