// A header is a chain: each length gives the place of the next field. One walker follows it and
// checks every bound before use; a fatal problem is thrown and ends the walk.
#include "scan.hpp"

#include <cstring>
#include <type_traits>

namespace ggufkit {
namespace {

constexpr uint32_t MAGIC = 0x46554747;  // "GGUF" read as little endian
constexpr uint32_t BOOL = 7, STRING = 8, ARRAY = 9;
constexpr bool HOST_IS_BIG = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;

uint32_t swap_bytes(uint32_t value) { return __builtin_bswap32(value); }
uint64_t swap_bytes(uint64_t value) { return __builtin_bswap64(value); }

template <class T, bool BigEndian>
T load(const uint8_t *from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return BigEndian == HOST_IS_BIG ? value : swap_bytes(value);
}

// Index of the first byte above `limit`, which is 0 or 1, or else `count`.
uint64_t first_above(const uint8_t *bytes, uint64_t count, uint8_t limit) {
    constexpr uint64_t STRIDE = 64;
    uint64_t at = 0;
    for (; count - at >= STRIDE; at += STRIDE) {
        uint8_t seen = 0;
        for (uint64_t i = 0; i < STRIDE; ++i) seen |= bytes[at + i];
        if (seen > limit) break;
    }
    while (at < count && bytes[at] <= limit) ++at;
    return at;
}

// Bytes of the UTF-8 sequence at `from` whose lead byte is not ASCII; 0 if it is invalid.
uint64_t sequence_bytes(const uint8_t *from, uint64_t left) {
    const uint8_t lead = from[0];
    if (lead < 0xc2 || lead > 0xf4) return 0;
    const uint64_t bytes = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if (bytes > left) return 0;
    // The second byte also rules out overlong forms, surrogates and values beyond U+10FFFF.
    const uint8_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    const uint8_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (from[1] < low || from[1] > high) return 0;
    for (uint64_t i = 2; i < bytes; ++i)
        if ((from[i] & 0xc0) != 0x80) return 0;
    return bytes;
}

bool is_utf8(const uint8_t *text, uint64_t length) {
    constexpr uint64_t HIGH_BITS = 0x8080808080808080;
    for (uint64_t at = 0; at < length;) {
        if (length - at >= 8 && (load<uint64_t, HOST_IS_BIG>(text + at) & HIGH_BITS) == 0) {
            at += 8;
        } else if (text[at] < 0x80) {
            ++at;
        } else {
            const uint64_t bytes = sequence_bytes(text + at, length - at);
            if (bytes == 0) return false;
            at += bytes;
        }
    }
    return true;
}

// A zero dim makes the product zero even if the others overflow, in any order.
uint64_t saturating_product(uint64_t a, uint64_t b) {
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

struct String {
    uint64_t at, length;
};

template <bool Wide, bool BigEndian>
class Walker {
public:
    using Word = std::conditional_t<Wide, uint64_t, uint32_t>;
    static constexpr uint64_t SMALLEST_KEY = sizeof(Word) + 4 + 1;
    static constexpr uint64_t SMALLEST_TENSOR = sizeof(Word) + 4 + 4 + 8;

    // Of a file of `total` bytes, `file` is the beginning or all.
    Walker(Span file, uint64_t total, uint64_t at, std::vector<Problem> &problems)
        : file_(file), total_(total), at_(at), problems_(&problems) {
        if (at > file.size) throw Problem{"header-truncated", at, 0, 0};
    }

    uint64_t at() const { return at_; }
    uint64_t left() const { return file_.size - at_; }
    uint64_t total_left() const { return total_ - at_; }

    void require(uint64_t bytes) const {
        if (bytes > left()) lacking("header-truncated", at_, bytes, bytes);
    }

    template <class T>
    T take() {
        require(sizeof(T));
        const T value = load<T, BigEndian>(file_.data + at_);
        at_ += sizeof(T);
        return value;
    }

    String take_string(const char *rule) {
        const uint64_t length_at = at_;
        const uint64_t length = take<Word>();
        if (length > left()) lacking(rule, length_at, length, length);
        const String string{at_, length};
        at_ += length;
        return string;
    }

    // Calls visit(i, string) until it returns false.
    template <class Visit>
    void take_strings(uint64_t count, Visit visit) {
        Walker walker = *this;  // a local stays in registers; the loop's speed depends on it
        uint64_t i = 0;
        try {
            for (; i < count; ++i)
                if (!visit(i, walker.take_string("string-length"))) break;
        } catch (Lack &lack) {
            lack.least += (count - i - 1) * sizeof(Word);
            lack.array_at = at_;
            lack.index = i;
            lack.count = count;
            throw;
        }
        at_ = walker.at_;
    }

    InnerArray take_array(uint32_t depth) {
        if (depth > MAX_ARRAY_DEPTH) throw Problem{"array-depth", at_, MAX_ARRAY_DEPTH, 0};
        const uint64_t type_at = at_;
        const uint32_t type = take<uint32_t>();
        const uint64_t smallest = smallest_bytes(type);
        if (smallest == 0) throw Problem{"element-type", type_at, type, 0};
        const uint64_t count_at = at_;
        const uint64_t count = take<Word>();
        if (count > total_left() / smallest)
            throw Problem{"array-count", count_at, count, total_left()};
        const uint64_t value_at = at_;
        skip_values(type, count, depth);
        return {type, 0, count, value_at, at_};
    }

    Key take_key() {
        const String name = take_string("key-length");
        const uint64_t type_at = at_;
        const uint32_t type = take<uint32_t>();
        const uint64_t smallest = smallest_bytes(type);
        if (smallest == 0) throw Problem{"value-type", type_at, type, 0};
        if (type == ARRAY) {
            const InnerArray array = take_array(1);
            return {name.at,     name.length,    type,     array.element_type,
                    array.count, array.value_at, array.end};
        }
        require(smallest);
        const uint64_t value_at = at_;
        skip_values(type, 1, 0);
        return {name.at, name.length, type, NO_ELEMENT_TYPE, 1, value_at, at_};
    }

    Tensor take_tensor() {
        const String name = take_string("name-length");
        const uint64_t n_dims_at = at_;
        const uint32_t n_dims = take<uint32_t>();
        if (n_dims > MAX_SCAN_DIMS) throw Problem{"dims-count", n_dims_at, n_dims, MAX_SCAN_DIMS};
        require(n_dims * sizeof(Word));
        Tensor tensor{name.at, name.length, at_, 1, 1, 0, n_dims, 0};
        for (uint32_t i = 0; i < n_dims; ++i) {
            const uint64_t dim = take<Word>();
            if (i == 0) tensor.width = dim;
            tensor.elements = saturating_product(tensor.elements, dim);
        }
        tensor.type = take<uint32_t>();
        tensor.offset = take<uint64_t>();
        return tensor;
    }

    void take_header(Header &header) {
        const uint64_t counts_at = at_;
        header.tensor_count = take<Word>();
        header.kv_count = take<Word>();
        if (header.tensor_count > total_left() / SMALLEST_TENSOR)
            throw Problem{"count", counts_at, header.tensor_count, total_left()};
        if (header.kv_count > total_left() / SMALLEST_KEY)
            throw Problem{"count", counts_at + sizeof(Word), header.kv_count, total_left()};
        try {
            for (uint64_t i = 0; i < header.kv_count; ++i) header.keys.push_back(take_key());
            for (uint64_t i = 0; i < header.tensor_count; ++i)
                header.tensors.push_back(take_tensor());
        } catch (Lack &lack) {
            // What is not begun is as short as can be; of what is begun, the rest is counted.
            const uint64_t keys = header.kv_count - header.keys.size();
            const uint64_t tensors = header.tensor_count - header.tensors.size();
            lack.least += (keys > 0 ? keys - 1 : 0) * SMALLEST_KEY;
            lack.least += (keys > 0 || tensors == 0 ? tensors : tensors - 1) * SMALLEST_TENSOR;
            throw;
        }
        header.end = at_;
    }

private:
    // Throws what is wrong if the next `bytes` are beyond the end of the file, or else what lacks.
    [[noreturn]] void lacking(const char *rule, uint64_t at, uint64_t a, uint64_t bytes) const {
        if (bytes > total_left()) throw Problem{rule, at, a, total_left()};
        throw Lack{at_ + bytes, 0, 0, 0};
    }

    // The fewest bytes of a value of this type, 0 for an unknown type.
    static uint64_t smallest_bytes(uint32_t type) {
        constexpr uint8_t BYTES[] = {
            1, 1, 2, 2, 4, 4, 4, 1, sizeof(Word), 4 + sizeof(Word), 8, 8, 8,
        };
        return type < sizeof BYTES ? BYTES[type] : 0;
    }

    // The caller has checked that `count` values of the smallest size fit.
    void skip_values(uint32_t type, uint64_t count, uint32_t depth) {
        if (type == STRING) {
            take_strings(count, [](uint64_t, String) { return true; });
        } else if (type == ARRAY) {
            for (uint64_t i = 0; i < count; ++i) take_array(depth + 1);
        } else {
            require(count * smallest_bytes(type));
            if (type == BOOL) note_bad_bool(count);
            at_ += count * smallest_bytes(type);
        }
    }

    void note_bad_bool(uint64_t count) {
        const uint8_t *values = file_.data + at_;
        const uint64_t bad = first_above(values, count, 1);
        // One place is reserved for the problem that may end the scan.
        if (bad < count && problems_->size() < MAX_PROBLEMS - 1)
            problems_->push_back({"bool-value", at_ + bad, values[bad], 0});
    }

    Span file_;
    uint64_t total_, at_;
    std::vector<Problem> *problems_;
};

template <class Use>
auto with_walker(Span file, uint64_t total, uint64_t at, Form form, std::vector<Problem> &problems,
                 Use use) {
    if (form.wide && form.big_endian) return use(Walker<true, true>(file, total, at, problems));
    if (form.wide) return use(Walker<true, false>(file, total, at, problems));
    if (form.big_endian) return use(Walker<false, true>(file, total, at, problems));
    return use(Walker<false, false>(file, total, at, problems));
}

template <class Use>
auto with_walker(Span file, uint64_t at, Form form, std::vector<Problem> &problems, Use use) {
    return with_walker(file, file.size, at, form, problems, use);
}

bool is_version(uint32_t version) { return version >= 1 && version <= 3; }

void scan_into(Header &header, Span file, uint64_t total) {
    Walker<true, false> start(file, total, 0, header.problems);
    const uint32_t magic = start.take<uint32_t>();
    if (magic != MAGIC) throw Problem{"magic", 0, magic, 0};
    const uint32_t raw = start.take<uint32_t>();
    header.big_endian = is_version(swap_bytes(raw));
    header.version = header.big_endian ? swap_bytes(raw) : raw;
    if (!is_version(header.version)) throw Problem{"version", 4, raw, 0};
    with_walker(file, total, start.at(), {header.version > 1, header.big_endian}, header.problems,
                [&](auto walker) { walker.take_header(header); });
}

}  // namespace

Header scan(Span file, uint64_t total) {
    Header header;
    try {
        scan_into(header, file, total < file.size ? file.size : total);
    } catch (const Lack &lack) {
        header.lack = lack;
    } catch (const Problem &fatal) {
        header.problems.push_back(fatal);
        header.end = fatal.offset;
    }
    return header;
}

std::vector<uint64_t> string_index(Span file, uint64_t at, uint64_t count, Form form) {
    std::vector<Problem> ignored;
    return with_walker(file, at, form, ignored, [&](auto walker) {
        using Word = typename decltype(walker)::Word;
        if (count > walker.left() / sizeof(Word))
            throw Problem{"array-count", at, count, walker.left()};
        std::vector<uint64_t> index(count + 1);
        walker.take_strings(count, [&](uint64_t i, String string) {
            index[i] = string.at - sizeof(Word);
            return true;
        });
        index[count] = walker.at();
        return index;
    });
}

std::vector<InnerArray> array_index(Span file, uint64_t at, uint64_t count, Form form) {
    std::vector<Problem> ignored;
    return with_walker(file, at, form, ignored, [&](auto walker) {
        std::vector<InnerArray> index;
        for (uint64_t i = 0; i < count; ++i) index.push_back(walker.take_array(1));
        return index;
    });
}

int64_t utf8_problem(Span file, uint64_t at, uint64_t count, Form form) {
    std::vector<Problem> ignored;
    return with_walker(file, at, form, ignored, [&](auto walker) {
        int64_t bad = -1;
        walker.take_strings(count, [&](uint64_t i, String string) {
            if (!is_utf8(file.data + string.at, string.length)) bad = static_cast<int64_t>(i);
            return bad < 0;
        });
        return bad;
    });
}

int64_t code_points(const uint8_t *text, uint64_t length, uint32_t *points) {
    int64_t count = 0;
    for (uint64_t at = 0; at < length;) {
        if (text[at] < 0x80) {
            points[count++] = text[at++];
            continue;
        }
        const uint64_t bytes = sequence_bytes(text + at, length - at);
        if (bytes == 0) return -1;
        uint32_t point = text[at] & (0x7fu >> bytes);
        for (uint64_t i = 1; i < bytes; ++i) point = point << 6 | (text[at + i] & 0x3fu);
        points[count++] = point;
        at += bytes;
    }
    return count;
}

bool all_zero(const uint8_t *bytes, uint64_t count) {
    return first_above(bytes, count, 0) == count;
}

}  // namespace ggufkit
