// The refiners for the instruction set that this file is compiled for: see isa.cpp.
#include "refiners.hpp"

#define REFINERS_OF_(isa) ggufkit_refiners_##isa
#define REFINERS_OF(isa) REFINERS_OF_(isa)

extern "C" {
extern const Refiners REFINERS_OF(GGUFKIT_ISA);
const Refiners REFINERS_OF(GGUFKIT_ISA) = {
    sizeof all_refiners / sizeof all_refiners[0],
    all_refiners,
};
}
