// A target of libFuzzer: the header scanner, and whatever it says may be looked at afterwards.
#include <algorithm>
#include <cstdint>
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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    // Of the exact size, so that a sanitizer sees one byte too many.
    const std::unique_ptr<uint8_t[]> exact(new uint8_t[size]);
    std::copy(data, data + size, exact.get());
    const ggufkit::Span file{exact.get(), size};
    const ggufkit::Header header = ggufkit::scan(file);
    const ggufkit::Form form{header.version > 1, header.big_endian};
    for (const ggufkit::Key &key : header.keys) index_values(file, key, form);
    std::vector<uint32_t> points(size);
    ggufkit::code_points(file.data, size, points.data());
    ggufkit::all_zero(file.data, size);
    return 0;
}
