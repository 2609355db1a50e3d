// The improvers for the instruction set that this file is compiled for: see isa.cpp.
#include "improvers.hpp"

#define IMPROVERS_OF_(isa) ggufkit_improvers_##isa
#define IMPROVERS_OF(isa) IMPROVERS_OF_(isa)

extern "C" {
extern const Improvers IMPROVERS_OF(GGUFKIT_ISA);
const Improvers IMPROVERS_OF(GGUFKIT_ISA) = {
    sizeof all_improvers / sizeof all_improvers[0],
    all_improvers,
};
}
