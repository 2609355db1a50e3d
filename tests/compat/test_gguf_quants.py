"""`quantize` and `dequantize` give what gguf-py's give, and stay lazy where it does."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nst

from ggufkit.compat import gguf as ours

F32, F16 = gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16
READABLE = sorted(gguf.quants._type_traits)
WRITABLE = [
    kind
    for kind in READABLE
    if type(gguf.quants._type_traits[kind]).__name__
    and "quantize_blocks" in vars(gguf.quants._type_traits[kind])
]


def _blocks(kind: gguf.GGMLQuantizationType, rows: int, per_row: int, seed: int) -> np.ndarray:
    size = gguf.GGML_QUANT_SIZES[kind][1]
    return np.random.default_rng(seed).integers(0, 256, (rows, per_row * size), np.uint8)


def same(ours: np.ndarray, theirs: np.ndarray) -> bool:
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    return np.array_equal(ours, theirs, equal_nan=ours.dtype.kind == "f")


@pytest.mark.parametrize("kind", READABLE, ids=lambda kind: kind.name)
def test_random_blocks_decode_the_same(kind):
    for rows, per_row in ((1, 1), (3, 5), (33, 2)):
        data = _blocks(kind, rows, per_row, rows)
        with np.errstate(all="ignore"):
            assert same(ours.dequantize(data, kind), gguf.dequantize(data, kind))
    stacked = _blocks(kind, 6, 2, 6).reshape(2, 3, -1)
    with np.errstate(all="ignore"):
        assert same(ours.dequantize(stacked, kind), gguf.dequantize(stacked, kind))
        strided = _blocks(kind, 8, 2, 8)[::2]
        assert same(ours.dequantize(strided, kind), gguf.dequantize(strided, kind))


@pytest.mark.parametrize("kind", WRITABLE, ids=lambda kind: kind.name)
@given(data=st.data())
def test_random_numbers_encode_the_same(kind, data):
    width = gguf.GGML_QUANT_SIZES[kind][0] * data.draw(st.integers(1, 2))
    # Not -0: of two zeros NumPy may take either as the smallest; ggufkit takes ggml's.
    floats = st.floats(-1e4, 1e4, width=32).map(lambda number: number + 0.0)
    floats |= st.sampled_from([1e-30, 65504.0, 0.5])
    array = data.draw(
        nst.arrays(np.float32, (3, width), elements=floats, fill=st.just(np.float32(0.25)))
    )
    with np.errstate(all="ignore"):
        theirs = gguf.quantize(array, kind)
    assert same(ours.quantize(array, kind), theirs)


@pytest.mark.parametrize("kind", WRITABLE, ids=lambda kind: kind.name)
@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int32, np.uint16])
def test_arrays_of_other_dtypes_encode_the_same(kind, dtype):
    array = np.random.default_rng(1).normal(200, 50, size=(4, 256)).astype(np.int16).astype(dtype)
    assert same(ours.quantize(array, kind), gguf.quantize(array, kind))


@pytest.mark.parametrize("kind", [F32, F16])
def test_floats_stay_floats(kind):
    array = np.linspace(-3, 3, 12).reshape(3, 4)
    assert same(ours.quantize(array, kind), gguf.quantize(array, kind))
    packed = gguf.quantize(array, kind).view(np.uint8)
    assert same(ours.dequantize(packed, kind), gguf.dequantize(packed, kind))
    assert same(ours.dequantize(packed[::2], kind), gguf.dequantize(packed[::2], kind))
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    assert same(ours.dequantize(halves, F16), gguf.dequantize(halves, F16))


def test_encodes_types_that_gguf_py_only_reads():
    array = np.random.default_rng(2).normal(size=(2, 256)).astype(np.float32)
    with pytest.raises(NotImplementedError):
        gguf.quantize(array, gguf.GGMLQuantizationType.Q4_K)
    packed = ours.quantize(array, gguf.GGMLQuantizationType.Q4_K)
    assert np.abs(gguf.dequantize(packed, gguf.GGMLQuantizationType.Q4_K) - array).max() < 0.4


@pytest.mark.parametrize("name", ["IQ1_S", "I32", "F64"])
def test_types_without_an_encoder_are_not_implemented_as_in_gguf_py(name):
    kind, array = gguf.GGMLQuantizationType[name], np.zeros((1, 256), np.float32)
    for function in (ours.quantize, gguf.quantize):
        with pytest.raises(NotImplementedError):
            function(array, kind)
    if name != "IQ1_S":
        for function in (ours.dequantize, gguf.dequantize):
            with pytest.raises(NotImplementedError, match=f"Dequantization for {name}"):
                function(array.view(np.uint8), kind)


def test_rows_that_do_not_divide_raise_gguf_pys_errors():
    kind = gguf.GGMLQuantizationType.Q8_0
    for function in (ours.quantize, gguf.quantize):
        with pytest.raises(gguf.QuantError, match="Can't quantize tensor with shape"):
            function(np.zeros((2, 33), np.float32), kind)
    for function in (ours.dequantize, gguf.dequantize):
        with pytest.raises(ValueError, match="is not a multiple of Q8_0 type size"):
            function(np.zeros((2, 33), np.uint8), kind)


@pytest.mark.parametrize("name", ["Q8_0", "Q4_K", "BF16", "F16", "F32"])
def test_lazy_tensors_stay_lazy(name):
    kind = gguf.GGMLQuantizationType[name]
    evaluated = []
    array = np.random.default_rng(3).normal(size=(2, 256)).astype(np.float32)

    def make(data: np.ndarray) -> np.ndarray:
        evaluated.append(True)
        return data

    lazy = gguf.LazyNumpyTensor(
        meta=gguf.LazyNumpyTensor.eager_to_meta(array), args=(array,), func=make
    )
    packed = ours.quantize(lazy, kind)
    back = ours.dequantize(packed, kind)
    assert isinstance(packed, gguf.LazyNumpyTensor)
    assert isinstance(back, gguf.LazyNumpyTensor)
    assert (back.shape, back.dtype) == (array.shape, np.float32)
    assert not evaluated
    assert same(gguf.LazyNumpyTensor.to_eager(packed), ours.quantize(array, kind))
    assert evaluated == [True]
    eager = gguf.LazyNumpyTensor.to_eager(back)
    assert eager.shape == array.shape


@pytest.mark.parametrize("kind", WRITABLE, ids=lambda kind: kind.name)
@pytest.mark.parametrize("numbers", [np.nan, np.inf, 3e38])
def test_numbers_that_no_block_holds_do_not_raise(kind, numbers):
    array = np.full((1, 256), 0.5, np.float32)
    array[0, 7] = numbers
    with np.errstate(all="ignore"):
        theirs = gguf.quantize(array, kind)
        assert ours.quantize(array, kind).shape == theirs.shape


def test_arrays_without_elements_keep_their_shape():
    kind = gguf.GGMLQuantizationType.Q8_0  # gguf-py fails for others
    empty = np.zeros((0, 32), np.float32)
    assert same(ours.quantize(empty, kind), gguf.quantize(empty, kind))
    packed = gguf.quantize(empty, kind)
    assert same(ours.dequantize(packed, kind), gguf.dequantize(packed, kind))
