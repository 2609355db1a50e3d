// A target of libFuzzer: every kernel on any bytes. The first byte chooses the type, the second how
// it is used, the rest is data. What one instruction set makes of it, all others must make as well.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "../../native/quants/dispatch.hpp"

namespace {

enum How : uint8_t { how_streaming = 1, how_shifted = 2, how_encode = 4, how_weighted = 8 };

constexpr size_t HEAD = 2;

// A NaN is a NaN: which one is the processor's own. In bytes it shows as check_vectors.cpp says.
bool same(float a, float b) {
    return !memcmp(&a, &b, sizeof a) || (std::isnan(a) && std::isnan(b));
}
bool same(uint8_t a, uint8_t b) { return a == b || ((a ^ b) == 0x80 && (a & 0x70) == 0x70); }

template <class Value>
bool all_same(const std::vector<Value> &a, const std::vector<Value> &b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](Value x, Value y) { return same(x, y); });
}

void require(bool holds, const Table &table, const Codec &codec, const char *what) {
    if (holds) return;
    fprintf(stderr, "%s on %s: %s\n", codec.name, table.isa, what);
    abort();
}

// The vectors are of the exact size, so that a sanitizer sees one element too many.
void decode_all(const Codec &chosen, uint8_t how, const uint8_t *data, size_t size) {
    const int64_t blocks = size / chosen.block_bytes;
    const std::vector<uint8_t> packed(data, data + blocks * chosen.block_bytes);
    const size_t shift = how & how_shifted ? 1 : 0;
    const int64_t wrong = chosen.validate(packed.data(), blocks);
    std::vector<float> expected(blocks * chosen.block_size + shift);
    chosen.decode(packed.data(), expected.data() + shift, blocks, false);
    for (const Table *table : runnable_tables()) {
        const Codec &codec = *find_codec(*table, chosen.id);
        std::vector<float> made(expected.size());
        codec.decode(packed.data(), made.data() + shift, blocks, how & how_streaming);
        require(all_same(made, expected), *table, codec, "decodes otherwise");
        require(codec.validate(packed.data(), blocks) == wrong, *table, codec,
                "validates otherwise");
    }
}

std::vector<float> floats_of(const uint8_t *data, size_t size) {
    std::vector<float> floats(size / sizeof(float));
    if (!floats.empty()) memcpy(floats.data(), data, floats.size() * sizeof(float));
    for (float &each : floats) each = std::isnan(each) ? std::nanf("") : each;
    return floats;
}

// Importance is finite and not negative: the rest is refused before any kernel sees it.
void make_weight(float &each) { each = std::isfinite(each) ? std::fabs(each) : 1; }

void encode_all(const Codec &chosen, uint8_t how, const uint8_t *data, size_t size) {
    const bool weighted = chosen.weights == weights_required ||
                          (chosen.weights == weights_taken && how & how_weighted);
    const size_t width = chosen.block_size, rows = size / sizeof(float) / width;
    if (!chosen.encode || rows <= weighted) return;
    std::vector<float> weights = floats_of(data, weighted ? width * sizeof(float) : 0);
    std::for_each(weights.begin(), weights.end(), make_weight);
    const size_t used = weights.size() * sizeof(float);
    const std::vector<float> x = floats_of(data + used, (rows - weighted) * width * sizeof(float));
    std::vector<uint8_t> expected;
    int64_t wrong = nothing_wrong;
    for (const Table *table : runnable_tables()) {
        const Codec &codec = *find_codec(*table, chosen.id);
        std::vector<uint8_t> made((rows - weighted) * codec.block_bytes);
        const int64_t found = codec.encode(x.data(), made.data(), rows - weighted, width,
                                           weighted ? weights.data() : nullptr);
        if (table == runnable_tables().front()) expected = made, wrong = found;
        require(found == wrong, *table, codec, "refuses otherwise");
        require(found != nothing_wrong || all_same(made, expected), *table, codec,
                "encodes otherwise");
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < HEAD) return 0;
    const Table &table = *runnable_tables().back();
    const Codec &chosen = table.codecs[data[0] % table.count];
    (data[1] & how_encode ? encode_all : decode_all)(chosen, data[1], data + HEAD, size - HEAD);
    return 0;
}
