# The kernels, for the Python module and for the program in tests/native.
set(GGUFKIT_NATIVE ${CMAKE_CURRENT_LIST_DIR})

# ccache, if it is there, knows a source by its content, in whatever folder it is.
find_program(GGUFKIT_CCACHE ccache)
if(GGUFKIT_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=/ CCACHE_NOHASHDIR=1 ${GGUFKIT_CCACHE})
endif()

set(GGUFKIT_OPTIMIZE -O3 CACHE STRING "How to optimize the kernels")
# -O3 gains nothing for searches, nor for kernels that run where there is no faster instruction set,
# and takes twice as long to compile.
string(REPLACE -O3 -O2 GGUFKIT_OPTIMIZE_LESS "${GGUFKIT_OPTIMIZE}")

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
  set_source_files_properties(${GGUFKIT_NATIVE}/quants/refiners.cpp PROPERTIES
    COMPILE_OPTIONS ${GGUFKIT_OPTIMIZE_LESS})
  target_include_directories(quants_${name} PRIVATE ${GGUFKIT_NATIVE} ${GGUFKIT_GENERATED})
  target_compile_definitions(quants_${name} PRIVATE GGUFKIT_ISA=${name})
  target_compile_options(quants_${name} PRIVATE
    ${GGUFKIT_OPTIMIZE} -ffp-contract=off -fno-math-errno -fno-trapping-math
    -Wall -Wextra -Wno-psabi ${ARGN})
endfunction()

set(GGUFKIT_ISAS v4 v3 v2 neon CACHE STRING
  "The instruction sets to compile, besides `portable`; `host` is the fastest one of this machine")

# The kernels of these instruction sets; the slowest to compile come first.
function(ggufkit_add_isas)
  set(requested ${GGUFKIT_ISAS})
  if("${requested}" STREQUAL host)
    try_run(exit_code compiled ${CMAKE_CURRENT_BINARY_DIR}/host_isa
      ${GGUFKIT_NATIVE}/quants/host_isa.cpp RUN_OUTPUT_VARIABLE requested)
  endif()
  set(isas "")
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64")
    set(isas v4 v3 v2)
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64|ARM64")
    set(isas neon)
  endif()
  # GCC 12 warns of uninitialized reads in its own AVX-512 headers.
  set(options_v4 -march=x86-64-v4 -mprefer-vector-width=512 -Wno-uninitialized
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  set(options_v3 -march=x86-64-v3)
  set(options_v2 -march=x86-64-v2)
  set(options_portable -DGGUFKIT_PORTABLE ${GGUFKIT_OPTIMIZE_LESS})
  set(compiled "")
  foreach(name ${isas} portable)
    if(name STREQUAL portable OR name IN_LIST requested)
      ggufkit_isa(${name} ${options_${name}})
      list(APPEND compiled ${name})
    endif()
  endforeach()
  set_property(GLOBAL PROPERTY GGUFKIT_COMPILED ${compiled})
endfunction()

# Adds the kernels to `target`; two targets share the objects.
function(ggufkit_add_kernels target)
  if(NOT TARGET quants_portable)
    ggufkit_add_isas()
  endif()
  get_property(isas GLOBAL PROPERTY GGUFKIT_COMPILED)
  target_sources(${target} PRIVATE
    ${GGUFKIT_NATIVE}/quants/dispatch.cpp ${GGUFKIT_NATIVE}/quants/neighbours.cpp)
  foreach(name ${isas})
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:quants_${name}>)
    target_compile_definitions(${target} PRIVATE GGUFKIT_HAS_${name})
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
  target_compile_definitions(${target} PRIVATE GGUFKIT_HAS_wide)
endfunction()
