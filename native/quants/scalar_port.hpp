// The scalar ports. Only the portable object has them, and the others call them there: compiling
// them again would give the same bytes.
#pragma once
#include "table.hpp"

extern "C" const Table ggufkit_quants_table_portable;

namespace {

inline const Codec &portable_codec(uint32_t id) {
    const Codec *codec = ggufkit_quants_table_portable.codecs;
    while (codec->id != id) ++codec;  // every table has every type
    return *codec;
}

}  // namespace
