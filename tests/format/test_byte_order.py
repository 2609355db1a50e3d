"""Swapping the byte order swaps each field of a block and nothing else."""

from __future__ import annotations

import ctypes
import struct

import gguf
import numpy as np
import pytest

import ggml_blocks
from ggufkit.format.byte_order import is_bytewise, to_byte_order
from ggufkit.format.types import GGML_TYPES, tensor_type
from spelled import block_form, swapped

KNOWN = [kind for kind in GGML_TYPES.values() if not kind.is_opaque]
BYTEWISE = {"I8", "MXFP4", "NVFP4"}


def blocks_of(kind, count=7):
    random = np.random.default_rng(kind.id)
    return random.integers(0, 256, (count, kind.block_bytes), np.uint8)


def widths_of(fields):
    parts = (field.rpartition("*") for field in fields.split())
    return [int(width) for count, _, width in parts for _ in range(int(count or 1))]


@pytest.mark.parametrize("kind", KNOWN, ids=str)
def test_swapped_fields_match_struct(kind):
    assert struct.calcsize("<" + block_form(kind.fields)) == kind.block_bytes
    blocks = blocks_of(kind)
    expected = swapped(blocks.tobytes(), kind.fields)
    assert to_byte_order(blocks, kind, "little", "big").tobytes() == expected


def test_swapped_fields_match_the_words_that_ggml_reads(ggml_source):
    """ggml on a big-endian machine reads swapped blocks as it reads the originals here."""
    expected = ggml_blocks.field_widths(ggml_source)
    blocks = [kind for kind in KNOWN if kind.is_quantized]
    assert {kind.name.lower() for kind in blocks} == {name.lower() for name in expected}
    for kind in blocks:
        name = next(name for name in expected if name.lower() == kind.name.lower())
        assert widths_of(kind.fields) == expected[name], kind.name


def test_refuses_source_code_that_reads_in_an_unknown_way(tmp_path):
    (tmp_path / "ggml-common.h").write_text("typedef struct {\n uint8_t qs[4];\n} block_new;")
    decoder = "void dequantize_row_new(const block_new * x) {\n memcpy(&v, x[i].qs, 4);\n}"
    (tmp_path / "ggml-quants.c").write_text(decoder)
    with pytest.raises(ggml_blocks.UnknownReadError):
        ggml_blocks.field_widths(tmp_path)


@pytest.mark.parametrize("kind", KNOWN, ids=str)
def test_swapping_twice_restores_the_bytes(kind):
    blocks = blocks_of(kind)
    before = blocks.copy()
    there = to_byte_order(blocks, kind, "little", "big")
    np.testing.assert_array_equal(to_byte_order(there, kind, "big", "little"), before)
    np.testing.assert_array_equal(blocks, before)


@pytest.mark.parametrize("kind", KNOWN, ids=str)
def test_same_order_copies_nothing(kind):
    blocks = blocks_of(kind)
    for order in ("little", "big"):
        assert to_byte_order(blocks, kind, order, order) is blocks
    assert is_bytewise(kind) == (kind.name in BYTEWISE)
    if is_bytewise(kind):
        assert to_byte_order(blocks, kind, "little", "big") is blocks


@pytest.mark.parametrize("kind", [t for t in KNOWN if t.dtype], ids=str)
def test_plain_types_swap_as_in_numpy(kind):
    blocks = blocks_of(kind)
    expected = blocks.view(kind.dtype).byteswap().view(np.uint8)
    np.testing.assert_array_equal(to_byte_order(blocks, kind, "big", "little"), expected)


@pytest.mark.parametrize(
    ("name", "places"), [("Q4_0", [0]), ("Q8_0", [0]), ("Q4_K", [0, 2]), ("Q6_K", [208])]
)
def test_quantized_types_swap_as_in_the_official_converter(name, places):
    """llama.cpp's gguf_convert_endian.py swaps the half-precision numbers at these places."""
    kind = tensor_type(name)
    assert gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]][1] == kind.block_bytes
    expected = blocks_of(kind)
    blocks = expected.copy()
    for place in places:
        expected[:, [place, place + 1]] = expected[:, [place + 1, place]]
    np.testing.assert_array_equal(to_byte_order(blocks, kind, "little", "big"), expected)


def test_swaps_rows_of_any_shape_and_stride():
    kind = tensor_type("Q4_0")
    blocks = blocks_of(kind, 24).reshape(4, 6 * kind.block_bytes)
    once = to_byte_order(blocks, kind, "little", "big")
    assert once.shape == blocks.shape
    half = to_byte_order(blocks[::2], kind, "little", "big")
    np.testing.assert_array_equal(half, once[::2])


@pytest.mark.parametrize("kind", KNOWN, ids=str)
@pytest.mark.parametrize("rows", [0, 1])
def test_swapping_no_bytes_gives_no_bytes(kind, rows):
    empty = np.zeros((rows, 0 if rows else kind.block_bytes), np.uint8)
    assert to_byte_order(empty, kind, "little", "big").shape == empty.shape


def test_opaque_bytes_are_not_swapped():
    data = np.arange(10, dtype=np.uint8)
    assert not is_bytewise(tensor_type(77))
    assert to_byte_order(data, tensor_type(77), "little", "big") is data


def test_the_machine_of_these_tests_is_little_endian():
    assert ctypes.c_uint16.from_buffer_copy(b"\x01\x00").value == 1
