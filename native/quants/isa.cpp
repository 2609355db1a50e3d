// All codecs for the instruction set that this file is compiled for.
//
// Compiled once per instruction set. Nothing but the table leaves the object: a template or
// inline function of the standard library could be merged by the linker with another object's
// copy and so bring, say, AVX-512 to a machine without it. Hence the anonymous namespaces and
// headers that hold no library code.
#include "feedback.hpp"
#include "types.hpp"  // made by kernels.cmake of what types/ holds

#define TABLE_OF_(isa) ggufkit_quants_table_##isa
#define TABLE_OF(isa) TABLE_OF_(isa)
#define REFINERS_OF_(isa) ggufkit_refiners_##isa
#define REFINERS_OF(isa) REFINERS_OF_(isa)
#define TEXT_OF_(isa) #isa
#define TEXT_OF(isa) TEXT_OF_(isa)

extern "C" {
extern const Refiners REFINERS_OF(GGUFKIT_ISA);  // in refiners.cpp
extern const Table TABLE_OF(GGUFKIT_ISA);
const Table TABLE_OF(GGUFKIT_ISA) = {
    TEXT_OF(GGUFKIT_ISA), portable ? 1 : lanes,      sizeof all_codecs / sizeof all_codecs[0],
    all_codecs,           &REFINERS_OF(GGUFKIT_ISA), choose_levels,
};
}
