# The kernels, for the Python module and for the program in tests/native.
set(GGUFKIT_NATIVE ${CMAKE_CURRENT_LIST_DIR})

# The code of v4 on machines without AVX-512: one more instruction set, "wide", which the tests
# force like any other. Its intrinsics are emulated lane by lane; other processors than x86-64
# run the same sixteen lanes in plain vector extensions.
option(GGUFKIT_WIDE "Build sixteen emulated lanes for testing" OFF)

set(GGUFKIT_OPTIMIZE -O3 CACHE STRING "How to optimize the kernels")

# One object per instruction set, from the same sources (see docs/kernels.md).
# -ffp-contract=off is a correctness flag: contraction changes quantized bytes.
function(ggufkit_isa target name)
  add_library(quants_${name} OBJECT ${GGUFKIT_NATIVE}/quants/isa.cpp)
  target_compile_definitions(quants_${name} PRIVATE GGUFKIT_ISA=${name})
  target_compile_options(quants_${name} PRIVATE
    ${GGUFKIT_OPTIMIZE} -ffp-contract=off -fno-math-errno -fno-trapping-math
    -Wall -Wextra -Wno-psabi ${ARGN})
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:quants_${name}>)
endfunction()

# Adds the kernels of every instruction set that the processor's family has to `target`.
function(ggufkit_add_kernels target)
  target_sources(${target} PRIVATE
    ${GGUFKIT_NATIVE}/quants/dispatch.cpp ${GGUFKIT_NATIVE}/quants/neighbours.cpp)
  ggufkit_isa(${target} portable -DGGUFKIT_PORTABLE)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64")
    ggufkit_isa(${target} v2 -march=x86-64-v2)
    ggufkit_isa(${target} v3 -march=x86-64-v3)
    # GCC 12 takes its own AVX-512 headers for uninitialized reads.
    ggufkit_isa(${target} v4 -march=x86-64-v4 -mprefer-vector-width=512 -Wno-uninitialized
      $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64|ARM64")
    ggufkit_isa(${target} neon)
  endif()

  if(GGUFKIT_WIDE)
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64")
      ggufkit_isa(${target} wide -DGGUFKIT_EMULATED -O2 -march=x86-64-v3
        -include ${GGUFKIT_NATIVE}/../tests/native/avx512_emulated.hpp)
    else()
      ggufkit_isa(${target} wide -DGGUFKIT_LANES=16 -O2)
    endif()
    target_compile_definitions(${target} PRIVATE GGUFKIT_WIDE)
  endif()
endfunction()
