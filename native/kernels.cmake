# The kernels, for the Python module and for the program in tests/native.
set(GGUFKIT_NATIVE ${CMAKE_CURRENT_LIST_DIR})

set(GGUFKIT_OPTIMIZE -O3 CACHE STRING "How to optimize the kernels")

# The list of types: each struct with an `id` in quants/types/ is one.
function(ggufkit_list_types header)
  file(GLOB files CONFIGURE_DEPENDS ${GGUFKIT_NATIVE}/quants/types/*.hpp)
  set(includes "")
  set(codecs "")
  foreach(file ${files})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    file(STRINGS ${file} lines REGEX "^struct |^    static constexpr uint32_t id = ")
    set(type "")
    set(has_type FALSE)
    foreach(line ${lines})
      if(line MATCHES "^struct ([A-Za-z0-9_]+)")
        set(type ${CMAKE_MATCH_1})
      else()
        string(APPEND codecs "    codec<${type}>(),\n")
        set(has_type TRUE)
      endif()
    endforeach()
    if(has_type)
      get_filename_component(name ${file} NAME)
      string(APPEND includes "#include \"quants/types/${name}\"\n")
    endif()
  endforeach()
  file(CONFIGURE OUTPUT ${header} @ONLY CONTENT
"// Written by native/kernels.cmake: every type in native/quants/types/.
#pragma once
@includes@
namespace {
constexpr Codec all_codecs[] = {
@codecs@};
}
")
endfunction()

set(GGUFKIT_GENERATED ${CMAKE_CURRENT_BINARY_DIR}/generated)
ggufkit_list_types(${GGUFKIT_GENERATED}/types.hpp)

# One object per instruction set, from the same sources (see docs/kernels.md).
# -ffp-contract=off is a correctness flag: contraction changes quantized bytes.
function(ggufkit_isa name)
  add_library(quants_${name} OBJECT
    ${GGUFKIT_NATIVE}/quants/isa.cpp ${GGUFKIT_NATIVE}/quants/refiners.cpp)
  target_include_directories(quants_${name} PRIVATE ${GGUFKIT_NATIVE} ${GGUFKIT_GENERATED})
  target_compile_definitions(quants_${name} PRIVATE GGUFKIT_ISA=${name})
  target_compile_options(quants_${name} PRIVATE
    ${GGUFKIT_OPTIMIZE} -ffp-contract=off -fno-math-errno -fno-trapping-math
    -Wall -Wextra -Wno-psabi ${ARGN})
endfunction()

# The kernels of every instruction set of the processor's family; the slowest to compile come first.
function(ggufkit_add_isas)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64")
    # GCC 12 warns of uninitialized reads in its own AVX-512 headers.
    ggufkit_isa(v4 -march=x86-64-v4 -mprefer-vector-width=512 -Wno-uninitialized
      $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
    ggufkit_isa(v3 -march=x86-64-v3)
    ggufkit_isa(v2 -march=x86-64-v2)
    set(isas v4 v3 v2)
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64|ARM64")
    ggufkit_isa(neon)
    set(isas neon)
  endif()
  ggufkit_isa(portable -DGGUFKIT_PORTABLE)
  set_property(GLOBAL PROPERTY GGUFKIT_ISAS ${isas} portable)
endfunction()

# Adds the kernels to `target`; two targets share the objects.
function(ggufkit_add_kernels target)
  if(NOT TARGET quants_portable)
    ggufkit_add_isas()
  endif()
  get_property(isas GLOBAL PROPERTY GGUFKIT_ISAS)
  target_sources(${target} PRIVATE
    ${GGUFKIT_NATIVE}/quants/dispatch.cpp ${GGUFKIT_NATIVE}/quants/neighbours.cpp)
  foreach(name ${isas})
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:quants_${name}>)
  endforeach()
endfunction()

# Adds the kernels and an instruction set for tests, "wide": the code of v4 for machines without
# AVX-512. Its intrinsics are emulated lane by lane; other processors than x86-64 run the same
# sixteen lanes in plain vector extensions.
function(ggufkit_add_wide_kernels target)
  ggufkit_add_kernels(${target})
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64")
    ggufkit_isa(wide -DGGUFKIT_EMULATED -O2 -march=x86-64-v3
      -include ${GGUFKIT_NATIVE}/../tests/native/avx512_emulated.hpp)
  else()
    ggufkit_isa(wide -DGGUFKIT_LANES=16 -O2)
  endif()
  set_target_properties(quants_wide PROPERTIES EXCLUDE_FROM_ALL ON)
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:quants_wide>)
  target_compile_definitions(${target} PRIVATE GGUFKIT_WIDE)
endfunction()
