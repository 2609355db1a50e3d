// The scanner over forged files and changes of them, their hash, and guards in several threads: for
// builds with sanitizers, which need no Python. Arguments are files, as tests/forge.py writes them.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <thread>
#include <vector>

#include "../../native/guard.hpp"
#include "../../native/xxh64.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);  // of fuzz_scan.cpp

namespace {

constexpr size_t LARGEST = 1 << 16, PAGES = 1 << 16, KEPT = 1 << 14;
constexpr int CHANGES = 60, ROUNDS = 200;

using Bytes = std::vector<uint8_t>;

void scan_changes(const Bytes &sound, std::mt19937 &draw) {
    for (int round = 0; round < CHANGES; ++round) {
        Bytes bytes(sound);
        for (int i = 0; i < round % 4 && !bytes.empty(); ++i)
            bytes[draw() % bytes.size()] = static_cast<uint8_t>(draw());
        if (round % 3 == 0 && !bytes.empty()) bytes.resize(draw() % bytes.size());
        LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    }
}

void require(bool holds, const char *what) {
    if (holds) return;
    std::fprintf(stderr, "%s\n", what);
    std::abort();
}

// In pieces of many sizes, each in memory of its own, so that a byte read too far is seen.
void hash_in_pieces(const Bytes &bytes, std::mt19937 &draw) {
    ggufkit::Xxh64 whole, pieces;
    whole.update(bytes.data(), bytes.size());
    for (size_t at = 0, size; at < bytes.size(); at += size) {
        size = std::min<size_t>(draw() % 100, bytes.size() - at);
        const Bytes piece(bytes.begin() + at, bytes.begin() + at + size);
        pieces.update(piece.data(), size);
    }
    require(whole.digest() == pieces.digest(), "pieces hash otherwise");
}

void cut_under_guard() {
    for (int round = 0; round < ROUNDS; ++round) {
        char name[] = "guarded-XXXXXX";
        const int file = mkstemp(name);
        unlink(name);
        require(ftruncate(file, PAGES) == 0, "no room for a file");
        void *map = mmap(nullptr, PAGES, PROT_READ, MAP_SHARED, file, 0);
        {
            ggufkit::Guard guard(map, PAGES);
            require(!guard.lost(), "lost before the cut");
            require(ftruncate(file, KEPT) == 0, "cannot cut");
            const volatile uint8_t *bytes = static_cast<uint8_t *>(map);
            require(bytes[PAGES - 1] == 0 && guard.lost(), "the cut was not noticed");
            guard.renew();
            guard.release();
            guard.renew();  // does nothing any more
            require(guard.lost(), "the cut was forgotten");
        }
        munmap(map, PAGES);
        close(file);
    }
}

}  // namespace

int main(int count, char **paths) {
    std::mt19937 draw(1);
    for (int i = 1; i < count; ++i) {
        std::ifstream file(paths[i], std::ios::binary);
        const Bytes bytes((std::istreambuf_iterator<char>(file)), {});
        if (bytes.size() > LARGEST) continue;
        scan_changes(bytes, draw);
        hash_in_pieces(bytes, draw);
    }
    std::thread first(cut_under_guard), second(cut_under_guard);
    first.join();
    second.join();
    std::printf("%d files, nothing found\n", count - 1);
}
