"""From one type to another, and to half floats: through float32, tile by tile."""

from __future__ import annotations

import tracemalloc

import ml_dtypes
import numpy as np
import pytest

import oracle
from ggufkit import quants
from ggufkit.errors import ShapeError, TensorTypeError, ValueTypeError
from ggufkit.format.types import tensor_type
from ggufkit.quants import parallel

PAIRS = [("Q4_0", "Q4_K"), ("Q6_K", "Q8_0"), ("F16", "Q5_1"), ("BF16", "F16"), ("Q8_0", "F32")]
HALVES = {np.float16: "F16", ml_dtypes.bfloat16: "BF16"}


def packed_rows(name, shape=(6, 768)):
    return quants.quantize(oracle.array("heavy tails", *shape), name)


@pytest.mark.parametrize(("source", "target"), PAIRS)
@pytest.mark.parametrize("task", [1, 300, 5000])
@pytest.mark.parametrize("threads", [1, 3])
def test_requantizing_matches_dequantizing_and_quantizing(
    source, target, task, threads, monkeypatch
):
    data = packed_rows(source)
    expected = quants.quantize(quants.dequantize(data, source), target)
    monkeypatch.setattr(parallel, "TASK", task)
    blocks = quants.requantize(data, source, target, threads=threads)
    np.testing.assert_array_equal(blocks, expected)
    backwards = quants.requantize(data[::-1], source, target, threads=threads)
    np.testing.assert_array_equal(backwards, expected[::-1])


def test_requantizing_uses_weights_of_columns_and_experts(monkeypatch):
    data = packed_rows("Q8_0", (12, 512)).reshape(3, 4, -1)
    floats = quants.dequantize(data, "Q8_0")
    monkeypatch.setattr(parallel, "TASK", 600)
    for shape in ((512,), (3, 512)):
        weights = np.random.default_rng(0).random(shape, np.float32)
        blocks = quants.requantize(data, "Q8_0", "Q4_K", imatrix=weights)
        np.testing.assert_array_equal(blocks, quants.quantize(floats, "Q4_K", imatrix=weights))
    with pytest.raises(ShapeError, match=r"\(512,\), \(3, 512\)"):
        quants.requantize(data, "Q8_0", "Q4_K", imatrix=np.ones(511))


def test_requantizing_holds_no_second_copy_of_the_whole():
    data = packed_rows("Q8_0", (4096, 1024))
    tracemalloc.start()
    result = quants.requantize(data, "Q8_0", "Q5_0", threads=1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak - result.nbytes < 3 * 4 * parallel.TASK


def test_the_same_type_keeps_its_bytes():
    data = np.random.default_rng(0).integers(0, 256, (3, 64), np.uint8)
    for name in ("F16", "BF16", "F32", "I64"):
        np.testing.assert_array_equal(quants.requantize(data, name, name), data)


@pytest.mark.parametrize(("source", "target"), [("I64", "I32"), ("F64", "I64"), ("I8", "I16")])
def test_integers_convert_to_integers_exactly(source, target):
    limits = np.iinfo(np.dtype(tensor_type(target).dtype))
    x = np.array([[limits.min, limits.max - limits.max // 2, 5, -3]])
    x = x if source != "I8" else np.array([[-128, 127, 5, -3]])
    data = x.astype(tensor_type(source).dtype).view(np.uint8)
    values = quants.requantize(data, source, target).view(limits.dtype)
    assert values.tolist() == x.tolist()


def test_names_a_value_that_an_integer_type_cannot_hold_and_its_place():
    x = np.zeros((3, 4), np.int64)
    x[2, 1] = 300
    with pytest.raises(ValueTypeError, match=r"I8 does not hold 300 .row 2, column 1"):
        quants.requantize(x.view(np.uint8), "I64", "I8")


def test_refuses_widths_and_types_that_do_not_fit():
    data = packed_rows("Q8_0", (2, 96))
    with pytest.raises(ShapeError, match=r"rows of 96 do not .* 256 elements of a Q4_K"):
        quants.requantize(data, "Q8_0", "Q4_K")
    with pytest.raises(ShapeError, match="34 bytes"):
        quants.requantize(data[:, 1:], "Q8_0", "Q4_0")
    with pytest.raises(TensorTypeError, match="decoded"):
        quants.requantize(data, "Q4_2", "Q4_0")
    with pytest.raises(TensorTypeError, match="encoded"):
        quants.requantize(data, "Q8_0", "Q4_2")
    with pytest.raises(TensorTypeError, match="without importance"):
        quants.requantize(packed_rows("Q8_0"), "Q8_0", "IQ2_XXS")


def test_empty_data_stays_empty():
    assert quants.requantize(np.zeros((0, 34), np.uint8), "Q8_0", "Q4_0").shape == (0, 18)
    assert quants.dequantize(np.zeros((3, 0), np.uint8), "Q8_0", dtype="f2").shape == (3, 0)


@pytest.mark.real
@pytest.mark.parametrize("name", ["Q8_0", "Q6_K", "IQ3_S", "F32", "TQ2_0"])
@pytest.mark.parametrize("dtype", HALVES)
def test_half_floats_are_rounded_as_in_ggml(name, dtype, monkeypatch):
    monkeypatch.setattr(parallel, "TASK", 500)
    kind = tensor_type(name)
    random = np.random.default_rng(3)
    data = random.integers(0, 256, (40, 3 * kind.row_bytes(256)), np.uint8)
    floats = quants.decode_rows(data, name)
    theirs = oracle.encode("llama.cpp", floats, tensor_type(HALVES[dtype])).view(np.uint16)
    ours = quants.dequantize(data, name, dtype=dtype)
    assert ours.dtype == dtype
    np.testing.assert_array_equal(ours.view(np.uint16), theirs)


def test_the_name_bfloat16_gives_its_bits_without_ml_dtypes():
    data = packed_rows("Q4_0")
    bits = quants.dequantize(data, "Q4_0", dtype="bfloat16")
    assert bits.dtype == np.uint16
    expected = quants.dequantize(data, "Q4_0", dtype=ml_dtypes.bfloat16)
    np.testing.assert_array_equal(bits, expected.view(np.uint16))


@pytest.mark.parametrize("dtype", HALVES)
def test_half_floats_of_their_own_type_keep_their_bits(dtype):
    data = np.arange(2**16, dtype=np.uint16).view(np.uint8).reshape(64, -1)
    for view in (data, data[::2]):
        values = quants.dequantize(view, HALVES[dtype], dtype=dtype)
        np.testing.assert_array_equal(values.view(np.uint8), view)


@pytest.mark.parametrize("dtype", [np.float64, np.int8, ">f4", ">f2", "float17", None, 5])
def test_refuses_other_output_dtypes_and_lists_the_known_ones(dtype):
    with pytest.raises(ValueTypeError, match=r"float32, float16, ml_dtypes.bfloat16"):
        quants.dequantize(packed_rows("Q8_0"), "Q8_0", dtype=dtype)
