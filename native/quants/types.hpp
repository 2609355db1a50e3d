// The list of types: to add one, write its file and its line here.
#pragma once
#include "types/bf16.hpp"
#include "types/f16.hpp"
#include "types/iq1_m.hpp"
#include "types/iq1_s.hpp"
#include "types/iq2_s.hpp"
#include "types/iq2_xs.hpp"
#include "types/iq2_xxs.hpp"
#include "types/iq3_s.hpp"
#include "types/iq3_xxs.hpp"
#include "types/iq4_nl.hpp"
#include "types/iq4_xs.hpp"
#include "types/mxfp4.hpp"
#include "types/nvfp4.hpp"
#include "types/plain.hpp"
#include "types/q1_0.hpp"
#include "types/q2_0.hpp"
#include "types/q2_k.hpp"
#include "types/q3_k.hpp"
#include "types/q4_0.hpp"
#include "types/q4_1.hpp"
#include "types/q4_k.hpp"
#include "types/q5_0.hpp"
#include "types/q5_1.hpp"
#include "types/q5_k.hpp"
#include "types/q6_k.hpp"
#include "types/q8_0.hpp"
#include "types/q8_1.hpp"
#include "types/q8_k.hpp"
#include "types/tq1_0.hpp"
#include "types/tq2_0.hpp"

namespace {

constexpr Codec all_codecs[] = {
    plain_codec<F32>(),  plain_codec<F64>(),  plain_codec<I8>(),   plain_codec<I16>(),
    plain_codec<I32>(),  plain_codec<I64>(),  codec<F16>(),        codec<BF16>(),
    codec<Q4_0>(),       codec<Q4_1>(),       codec<Q5_0>(),       codec<Q5_1>(),
    codec<Q8_0>(),       codec<Q8_1>(),       codec<Q1_0>(),       codec<Q2_0>(),
    codec<Q2_K>(),       codec<Q3_K>(),       codec<Q4_K>(),       codec<Q5_K>(),
    codec<Q6_K>(),       codec<Q8_K>(),       codec<IQ4_NL>(),     codec<IQ4_XS>(),
    grid_codec<IQ3_XXS>(), grid_codec<IQ3_S>(), grid_codec<IQ2_XXS>(), grid_codec<IQ2_XS>(),
    grid_codec<IQ2_S>(), grid_codec<IQ1_S>(), grid_codec<IQ1_M>(), codec<TQ1_0>(),
    codec<TQ2_0>(),      codec<MXFP4>(),      codec<NVFP4>(),
};

}  // namespace
