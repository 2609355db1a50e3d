// A target of libFuzzer: the header scanner, and whatever it says may be looked at afterwards.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "../../native/scan.hpp"

namespace {

void index_values(ggufkit::Span file, const ggufkit::Key &key, ggufkit::Form form) {
    try {
        ggufkit::string_index(file, key.value_at, key.count, form);
        ggufkit::array_index(file, key.value_at, key.count, form);
        ggufkit::utf8_problem(file, key.value_at, key.count, form);
    } catch (const ggufkit::Problem &) {  // most keys hold something else
    }
}

// A beginning lacks what comes later, never more than the file has, or shows the same problem.
void scan_beginning(ggufkit::Span file, const ggufkit::Header &whole, size_t size) {
    const std::unique_ptr<uint8_t[]> exact(new uint8_t[size]);
    std::copy(file.data, file.data + size, exact.get());
    const ggufkit::Header part = ggufkit::scan({exact.get(), size}, file.size);
    const bool lacks = part.lack.least > 0;
    if (lacks ? part.lack.least <= size : part.end != whole.end) std::abort();
    if (part.keys.size() > whole.keys.size()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    // Of the exact size, so that a sanitizer sees one byte too many.
    const std::unique_ptr<uint8_t[]> exact(new uint8_t[size]);
    std::copy(data, data + size, exact.get());
    const ggufkit::Span file{exact.get(), size};
    const ggufkit::Header header = ggufkit::scan(file);
    for (size_t part = 1; part < 8; ++part) scan_beginning(file, header, size / 8 * part);
    const ggufkit::Form form{header.version > 1, header.big_endian};
    for (const ggufkit::Key &key : header.keys) index_values(file, key, form);
    std::vector<uint32_t> points(size);
    ggufkit::code_points(file.data, size, points.data());
    ggufkit::all_zero(file.data, size);
    return 0;
}
