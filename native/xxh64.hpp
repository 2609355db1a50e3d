// XXH64, the fast hash that llama-gguf-hash prints: four sums side by side, mixed at the end.
// The algorithm is Yann Collet's, published in xxHash's doc/xxhash_spec.md.
#pragma once

#include <cstdint>
#include <cstring>

namespace ggufkit {

class Xxh64 {
public:
    void update(const uint8_t *data, uint64_t size) {
        total_ += size;
        if (held_ + size < STRIPE) return hold(data, size);
        if (held_ > 0) {
            const uint64_t missing = STRIPE - held_;
            std::memcpy(buffer_ + held_, data, missing);
            absorb(buffer_);
            data += missing;
            size -= missing;
            held_ = 0;
        }
        for (; size >= STRIPE; size -= STRIPE, data += STRIPE) absorb(data);
        hold(data, size);
    }

    uint64_t digest() const {
        uint64_t hash = (total_ < STRIPE ? P5 : merged()) + total_;
        const uint8_t *next = buffer_;
        const uint8_t *const end = buffer_ + held_;
        for (; end - next >= 8; next += 8)
            hash = rotate(hash ^ round(0, word<uint64_t>(next)), 27) * P1 + P4;
        for (; end - next >= 4; next += 4)
            hash = rotate(hash ^ (word<uint32_t>(next) * P1), 23) * P2 + P3;
        for (; next < end; ++next) hash = rotate(hash ^ (*next * P5), 11) * P1;
        hash = (hash ^ (hash >> 33)) * P2;
        hash = (hash ^ (hash >> 29)) * P3;
        return hash ^ (hash >> 32);
    }

private:
    static constexpr uint64_t STRIPE = 32;
    static constexpr uint64_t P1 = 0x9E3779B185EBCA87, P2 = 0xC2B2AE3D27D4EB4F,
                              P3 = 0x165667B19E3779F9, P4 = 0x85EBCA77C2B2AE63,
                              P5 = 0x27D4EB2F165667C5;

    static uint64_t rotate(uint64_t x, int bits) { return (x << bits) | (x >> (64 - bits)); }
    static uint64_t round(uint64_t sum, uint64_t word) { return rotate(sum + word * P2, 31) * P1; }

    // Little endian, as in the algorithm and on all machines that the kernels run on.
    template <class Word>
    static uint64_t word(const uint8_t *next) {
        Word word;
        std::memcpy(&word, next, sizeof word);
        return word;
    }

    void absorb(const uint8_t *stripe) {
        for (int i = 0; i < 4; ++i) sums_[i] = round(sums_[i], word<uint64_t>(stripe + 8 * i));
    }

    void hold(const uint8_t *data, uint64_t size) {
        if (size > 0) std::memcpy(buffer_ + held_, data, size);
        held_ += size;
    }

    uint64_t merged() const {
        uint64_t hash =
            rotate(sums_[0], 1) + rotate(sums_[1], 7) + rotate(sums_[2], 12) + rotate(sums_[3], 18);
        for (const uint64_t sum : sums_) hash = (hash ^ round(0, sum)) * P1 + P4;
        return hash;
    }

    uint64_t sums_[4] = {P1 + P2, P2, 0, 0 - P1};  // the initial state for seed 0
    uint64_t total_ = 0;
    uint64_t held_ = 0;
    uint8_t buffer_[STRIPE];
};

}  // namespace ggufkit
