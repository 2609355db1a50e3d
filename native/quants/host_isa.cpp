// Prints the fastest instruction set that this machine runs: for builds that stay on it.
#include <cstdio>

#include "x86_level.hpp"

int main() {
#if defined(__x86_64__)
    std::printf("v%d", x86_level());
#elif defined(__aarch64__)
    std::printf("neon");
#endif
}
