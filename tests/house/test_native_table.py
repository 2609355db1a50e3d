"""The native codecs, the Python table of types and ggml's own agree on every fact."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import numpy as np
import pytest

import ggufkit._native as _native
import real
from ggufkit import quants
from ggufkit.format.types import GGML_TYPES, TENSOR_TYPES

TYPES = Path(__file__).parents[2] / "native" / "quants" / "types"


@pytest.mark.parametrize("isa", quants.instruction_sets())
def test_codecs_agree_with_the_table_of_types(isa):
    for number, name, block_size, block_bytes, *_ in _native.codecs(isa):
        row = TENSOR_TYPES[number]
        assert (row.name, row.block_size, row.block_bytes) == (name, block_size, block_bytes)


@pytest.mark.parametrize("isa", quants.instruction_sets())
def test_every_instruction_set_has_the_same_codecs(isa):
    assert _native.codecs(isa) == _native.codecs("portable")


def test_no_type_has_two_codecs():
    numbers = [row[0] for row in _native.codecs("portable")]
    assert len(numbers) == len(set(numbers))


def test_every_type_of_the_native_sources_has_a_codec():
    text = "".join(path.read_text(encoding="utf-8") for path in TYPES.glob("*.hpp"))
    written = {int(number) for number in re.findall(r"\buint32_t id = (\d+)", text)}
    assert written == {row[0] for row in _native.codecs("portable")}


@pytest.mark.parametrize("row", GGML_TYPES.values(), ids=str)
def test_fields_add_up_to_a_block(row):
    widths = [[int(number) for number in field.split("*")] for field in row.fields.split()]
    assert sum(int(np.prod(width)) for width in widths) == row.block_bytes


@pytest.mark.parametrize("row", [r for r in GGML_TYPES.values() if r.dtype], ids=str)
def test_plain_types_are_as_wide_as_their_dtype(row):
    assert (row.block_size, row.block_bytes) == (1, np.dtype(row.dtype).itemsize)


@pytest.mark.real
@pytest.mark.parametrize("library", [real.ggml, real.llama_cpp], ids=["libggml", "llama.cpp"])
def test_names_and_sizes_match_ggml(library):
    ggml = library()
    ggml.ggml_type_name.restype = ctypes.c_char_p
    ggml.ggml_type_size.restype = ctypes.c_size_t
    ggml.ggml_blck_size.restype = ctypes.c_int64
    for row in GGML_TYPES.values():
        if not row.is_opaque:
            assert ggml.ggml_type_name(row.id).decode().upper() == row.name
            assert ggml.ggml_blck_size(row.id) == row.block_size
            assert ggml.ggml_type_size(row.id) == row.block_bytes


def test_kernels_use_no_library_code_that_a_linker_could_share():
    allowed = {"<stdint.h>", "<string.h>", "<immintrin.h>", "<arm_neon.h>"}
    sources = [
        *(TYPES.parent / name for name in ("isa.cpp", "refiners.cpp")),
        *(path for path in TYPES.parent.rglob("*.hpp")),
    ]
    for path in sources:
        if path.name not in {"dispatch.hpp", "x86_level.hpp"}:  # not of a kernel
            lines = path.read_text(encoding="utf-8").splitlines()
            included = {line.split()[1] for line in lines if line.startswith("#include <")}
            assert included <= allowed, path.name
