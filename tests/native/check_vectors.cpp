// Holds every instruction set that this build can run to a file of write_vectors.py:
//     check_vectors FILE [THREADS]
// in so many threads at once, each with all of it.
// For machines without Python: a cross-compiled build in an emulator, or another compiler's.
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "../../native/quants/dispatch.hpp"

namespace {

enum What : uint32_t { what_encode = 1, what_decode = 2 };

struct Head {
    uint32_t what, id;
    char character[24];
};

class Reader {
public:
    explicit Reader(const char *path) : file_(path, std::ios::binary) {
        if (!file_) throw std::runtime_error(std::string("cannot read ") + path);
    }

    bool at_end() { return file_.peek() == std::ifstream::traits_type::eof(); }

    template <class Value>
    Value one() {
        return many<Value>(1)[0];
    }

    template <class Value>
    std::vector<Value> many(size_t count) {
        std::vector<Value> values(count);
        file_.read(reinterpret_cast<char *>(values.data()), count * sizeof(Value));
        if (!file_) throw std::runtime_error("the file ends too early");
        return values;
    }

private:
    std::ifstream file_;
};

// One more byte than asked for, at the end: a kernel that writes it is found out.
constexpr uint8_t guard = 0xA5;

// The sign of a NaN that arithmetic makes is the processor's own, in ggml too: x86 sets it, Arm
// does not. It shows in the upper byte of a half float, and of IQ1_M's in the upper half of a byte.
bool same(uint8_t a, uint8_t b) { return a == b || ((a ^ b) == 0x80 && (a & 0x70) == 0x70); }

bool same(float a, float b) {
    return !memcmp(&a, &b, sizeof a) || (std::isnan(a) && std::isnan(b));
}

template <class Value>
bool all_same(const Value *a, const std::vector<Value> &b) {
    for (size_t i = 0; i < b.size(); ++i) {
        if (!same(a[i], b[i])) return false;
    }
    return true;
}

struct EncodeCase {
    int64_t rows, width, weighted, bad;
    std::vector<float> x, weights;
    std::vector<uint8_t> expected;

    EncodeCase(Reader &in, const Codec &codec)
        : rows(in.one<int64_t>()),
          width(in.one<int64_t>()),
          weighted(in.one<int64_t>()),
          bad(in.one<int64_t>()),
          x(in.many<float>(rows * width)),
          weights(in.many<float>(weighted ? width : 0)),
          expected(in.many<uint8_t>(rows * row_bytes(codec, width))) {}

    static int64_t row_bytes(const Codec &codec, int64_t width) {
        return codec.row_prefix + width / codec.block_size * codec.block_bytes;
    }

    bool holds_for(const Codec &codec) const {
        std::vector<uint8_t> made(expected.size() + 1, guard);
        memset(made.data(), 0, expected.size());
        const float *columns = weighted ? weights.data() : nullptr;
        const int64_t found = codec.encode(x.data(), made.data(), rows, width, columns);
        if (found != bad || made.back() != guard) return false;
        return bad != nothing_wrong || all_same(made.data(), expected);
    }
};

struct DecodeCase {
    int64_t blocks, bad;
    std::vector<uint8_t> data;
    std::vector<float> expected;

    DecodeCase(Reader &in, const Codec &codec)
        : blocks(in.one<int64_t>()),
          bad(in.one<int64_t>()),
          data(in.many<uint8_t>(blocks * codec.block_bytes)),
          expected(in.many<float>(blocks * codec.block_size)) {}

    bool holds_for(const Codec &codec) const {
        if (codec.validate(data.data(), blocks) != bad) return false;
        return decodes(codec, 0, false) && decodes(codec, 0, true) && decodes(codec, 1, true);
    }

    // Into memory that begins so many floats after a multiple of 64 bytes.
    bool decodes(const Codec &codec, size_t shift, bool streaming) const {
        std::vector<float> memory(expected.size() + 17);
        const size_t beyond = reinterpret_cast<uintptr_t>(memory.data()) % 64;
        float *made = memory.data() + (64 - beyond) / sizeof(float) % 16 + shift;
        codec.decode(data.data(), made, blocks, streaming);
        return all_same(made, expected);
    }
};

template <class Case>
int failures(Reader &in, const Head &head) {
    const Case one(in, *find_codec(*runnable_tables().back(), head.id));
    int failed = 0;
    for (const Table *table : runnable_tables()) {
        const Codec &codec = *find_codec(*table, head.id);
        if (one.holds_for(codec)) continue;
        const char *what = head.what == what_encode ? "encodes" : "decodes";
        printf("%s %s %s otherwise on %s\n", table->isa, what, codec.name, head.character);
        ++failed;
    }
    return failed;
}

int check(const char *path) {
    Reader in(path);
    int cases = 0, failed = 0;
    for (; !in.at_end(); ++cases) {
        const Head head = in.one<Head>();
        failed += head.what == what_encode ? failures<EncodeCase>(in, head)
                                           : failures<DecodeCase>(in, head);
    }
    for (const Table *table : runnable_tables()) printf("%s ", table->isa);
    printf("held to %d arrays: %d differ\n", cases, failed);
    return failed || !cases ? 1 : 0;
}

int check_or_say(const char *path) {
    try {
        return check(path);
    } catch (const std::exception &error) {
        fprintf(stderr, "check_vectors: %s\n", error.what());
        return 1;
    }
}

}  // namespace

int main(int count, char **arguments) {
    if (count < 2) {
        fprintf(stderr, "usage: check_vectors FILE [THREADS]\n");
        return 2;
    }
    std::atomic<int> failed{0};
    std::vector<std::thread> others;
    for (int i = 1; i < (count > 2 ? atoi(arguments[2]) : 1); ++i) {
        others.emplace_back([&] { failed += check_or_say(arguments[1]); });
    }
    failed += check_or_say(arguments[1]);
    for (std::thread &other : others) other.join();
    return failed ? 1 : 0;
}
