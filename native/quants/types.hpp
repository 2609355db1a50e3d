// The list of types: to add one, write its file and its line here.
#pragma once
#include "types/bf16.hpp"
#include "types/f16.hpp"
#include "types/plain.hpp"
#include "types/q4_0.hpp"
#include "types/q4_1.hpp"
#include "types/q5_0.hpp"
#include "types/q5_1.hpp"
#include "types/q8_0.hpp"

namespace {

constexpr Codec all_codecs[] = {
    plain_codec<F32>(), plain_codec<F64>(), plain_codec<I8>(),  plain_codec<I16>(),
    plain_codec<I32>(), plain_codec<I64>(), codec<F16>(),       codec<BF16>(),
    codec<Q4_0>(),      codec<Q4_1>(),      codec<Q5_0>(),      codec<Q5_1>(),
    codec<Q8_0>(),
};

}  // namespace
