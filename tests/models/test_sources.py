"""Arrays become tensors without silent changes; derived sources match the codecs."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from ggufkit import quants
from ggufkit.errors import ShapeError, TensorTypeError, ValueTypeError
from ggufkit.format.byte_order import to_byte_order
from ggufkit.format.types import tensor_type
from ggufkit.models.model import Tensor
from ggufkit.models.sources import ArraySource, Swapped, from_array, in_order, retyped

OWN = {
    "F32": np.float32,
    "F16": np.float16,
    "F64": np.float64,
    "BF16": ml_dtypes.bfloat16,
    "I8": np.int8,
    "I16": np.int16,
    "I32": np.int32,
    "I64": np.int64,
}
SHAPES = [(), (1,), (5,), (2, 3), (2, 3, 4), (2, 1, 3, 4), (2, 2, 2, 2, 2), (0,), (3, 0), (0, 3)]


def bits_of(dtype, shape, seed=0):
    """Return an array of arbitrary bits, including NaNs and infinities."""
    random = np.random.default_rng(seed)
    size = np.dtype(dtype).itemsize
    raw = random.integers(0, 256, (*shape, size), np.uint8)
    return raw.view(dtype).reshape(shape)


def little_endian_bytes(array):
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    return np.ascontiguousarray(native).tobytes()


# Arrays in their own type.


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_array_keeps_shape_and_every_bit(name, shape):
    array = bits_of(OWN[name], shape)
    tensor = from_array("t", array)
    assert tensor.type == tensor_type(name)
    assert tensor.shape == shape
    assert tensor.nbytes == array.nbytes
    assert tensor.raw().tobytes() == little_endian_bytes(array)
    assert tensor.raw().shape == (*shape[:-1], array.itemsize * (shape[-1] if shape else 1))
    assert tensor.numpy().shape == shape
    if name != "BF16":
        assert tensor.numpy().dtype == array.dtype
        assert tensor.numpy().tobytes() == little_endian_bytes(array)


@pytest.mark.parametrize("name", sorted(set(OWN) - {"BF16"}))
def test_big_endian_array_keeps_every_bit(name):
    array = bits_of(OWN[name], (3, 4)).astype(np.dtype(OWN[name]).newbyteorder(">"))
    for swapped in (array, array[0, 0], array.T):
        assert from_array("t", np.asarray(swapped)).raw().tobytes() == little_endian_bytes(swapped)


VIEWS = {
    "transposed": lambda array: array.T,
    "Fortran": np.asfortranarray,
    "strided": lambda array: array[::2, ::3],
    "reversed": lambda array: array[::-1, ::-1],
    "broadcast": lambda array: np.broadcast_to(array[:1], (5, *array.shape[1:])),
    "misaligned": lambda array: np.frombuffer(
        b"x" + array.tobytes(), array.dtype, array.size, 1
    ).reshape(array.shape),
    "subclass": lambda array: array.view(np.recarray),
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", OWN)
def test_accepts_arrays_of_any_strides(name, view):
    array = VIEWS[view](bits_of(OWN[name], (6, 9)))
    tensor = from_array("t", array)
    assert tensor.shape == array.shape
    assert tensor.raw().tobytes() == little_endian_bytes(array)


@pytest.mark.parametrize(
    "dtype", ["u1", "u2", "u4", "u8", "?", "c8", "O", "S3", "U3", "M8[s]", "V4", "longdouble"]
)
def test_refuses_a_dtype_without_a_tensor_type(dtype):
    with pytest.raises(TensorTypeError, match="tensor 't': no tensor type holds"):
        from_array("t", np.zeros(4, dtype))


# Arrays in another type.


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ml_dtypes.bfloat16, ">f4", ">f8", ">f2"])
@pytest.mark.parametrize("name", ["Q8_0", "Q4_0", "F16", "BF16", "F32"])
def test_floats_are_packed_as_by_quantize(dtype, name):
    array = np.random.default_rng(1).standard_normal((3, 5, 64)).astype(dtype)
    native = array.astype(array.dtype.newbyteorder("="))
    tensor = from_array("t", array, name)
    assert tensor.shape == (3, 5, 64)
    assert str(tensor.type) == name
    assert tensor.raw().tobytes() == quants.quantize(native, name).tobytes()


def test_packs_nothing_before_it_is_read(monkeypatch):
    array = np.zeros((4, 64), np.float32)
    tensor = from_array("t", array, "Q8_0")
    array[2] = 127
    assert tensor[2:3].numpy().max() == 127
    assert tensor[:2].numpy().max() == 0


@pytest.mark.parametrize(
    ("wide", "name"), [("i8", "I32"), ("i8", "I8"), ("f8", "I64"), ("i2", "I8")]
)
def test_integer_types_accept_numbers_that_they_hold_exactly(wide, name):
    array = np.array([[0, 1, -128, 127], [5, 6, 7, 8]]).astype(wide)
    tensor = from_array("t", array, name)
    assert tensor.numpy().tolist() == array.tolist()


def test_a_wide_integer_is_not_rounded():
    array = np.array([2**24 + 1, 2**31 - 1], np.int64)
    assert from_array("t", array, "I32").numpy().tolist() == array.tolist()


@pytest.mark.parametrize("number", [128, -129, 0.5, np.nan, np.inf])
def test_names_a_number_that_an_integer_type_cannot_hold(number):
    tensor = from_array("t", np.array([[0, 0], [0, number]], np.float64), "I8")
    with pytest.raises(ValueTypeError, match=r"tensor 't'.*does not hold .* \(row 1, column 1\)"):
        tensor.raw()


def test_integers_are_not_converted_to_floats_silently():
    with pytest.raises(ValueTypeError, match="cannot be packed as Q8_0"):
        from_array("t", np.zeros((2, 32), np.int64), "Q8_0")


@pytest.mark.parametrize("name", ["Q4_2", 99, "nonsense"])
def test_refuses_a_type_that_cannot_be_written(name):
    with pytest.raises(TensorTypeError):
        from_array("t", np.zeros((2, 32), np.float32), name)


def test_refuses_rows_that_do_not_divide_into_blocks():
    with pytest.raises(ShapeError, match="33 elements do not divide into the blocks of 32"):
        from_array("t", np.zeros((2, 33), np.float32), "Q8_0")
    with pytest.raises(ShapeError):
        from_array("t", np.float32(1), "Q8_0")


# Packed bytes.


@pytest.mark.parametrize("shape", [(3, 68), (34,), (2, 3, 34), (0, 34), (3, 0)], ids=str)
def test_packed_bytes_are_stored_unchanged(shape):
    data = bits_of(np.uint8, shape)
    tensor = from_array("t", data, "Q8_0")
    assert tensor.shape == (*shape[:-1], shape[-1] // 34 * 32)
    assert tensor.raw().shape == shape
    assert tensor.raw().tobytes() == data.tobytes()


@pytest.mark.parametrize("name", ["IQ2_XXS", "Q6_K", "MXFP4", "TQ1_0"])
def test_packed_bytes_need_no_encoder(name):
    kind = tensor_type(name)
    tensor = from_array("t", bits_of(np.uint8, (2, 2 * kind.block_bytes))[:, ::-1], kind)
    assert tensor.shape == (2, 2 * kind.block_size)


def test_refuses_packed_bytes_that_are_not_whole_blocks():
    for data in (np.zeros((2, 33), np.uint8), np.uint8(1)):
        with pytest.raises(ShapeError, match="do not divide into the blocks of 34 bytes"):
            from_array("t", np.asarray(data), "Q8_0")
    with pytest.raises(ShapeError):
        from_array("t", np.zeros((2, 32), np.uint8), 99)


# Derived sources.


def in_big_endian(tensor):
    data = to_byte_order(tensor.source.read(0, tensor.rows), tensor.type, "little", "big")

    class Big(ArraySource):
        byte_order = "big"

    return Tensor(tensor.name, tensor.type, tensor.shape, tensor.nbytes, Big(data))


@pytest.mark.parametrize("before", ["F32", "F16", "BF16", "F64", "Q8_0", "Q4_1"])
@pytest.mark.parametrize("after", ["F32", "Q8_0", "Q5_0", "BF16"])
def test_retyped_rows_are_decoded_and_packed_again(before, after):
    array = np.random.default_rng(2).standard_normal((9, 64))
    tensor = from_array("t", array.astype("f4"), before)
    expected = quants.quantize(quants.dequantize(tensor.raw(), before), after)
    for source in (tensor, in_big_endian(tensor)):
        decoded = retyped(source, after)
        assert decoded.shape == (9, 64)
        rows = in_order(decoded, "little")
        in_pieces = [rows.read(start, start + 3) for start in (0, 3, 6)]
        assert np.concatenate(in_pieces).tobytes() == expected.tobytes()


def test_retyping_to_the_same_type_does_nothing():
    tensor = from_array("t", np.zeros((2, 32), np.float32))
    assert retyped(tensor, "F32") is tensor


def test_retyping_refuses_the_impossible_at_once():
    tensor = from_array("t", np.zeros((2, 48), np.float32))
    with pytest.raises(ShapeError):
        retyped(tensor, "Q8_0")
    with pytest.raises(TensorTypeError):
        retyped(tensor, "Q4_2")


@pytest.mark.parametrize("name", ["F32", "I64", "Q8_0", "Q8_K"])
def test_swapped_rows_match_the_other_byte_order(name):
    kind = tensor_type(name)
    data = bits_of(np.uint8, (5, 2 * kind.block_bytes))
    tensor = from_array("t", data, kind)
    source = in_order(tensor, "big")
    assert isinstance(source, Swapped)
    assert source.byte_order == "big"
    expected = to_byte_order(data, kind, "little", "big")
    np.testing.assert_array_equal(source.read(1, 4), expected[1:4])
    assert in_order(tensor, "little") is tensor.source


def test_bytewise_types_need_no_swapping():
    tensor = from_array("t", np.zeros((2, 4), np.int8))
    assert in_order(tensor, "big") is tensor.source


def test_tensors_compare_without_reading_their_data():
    array = np.zeros((2, 32), np.float32)
    one, other = from_array("t", array), from_array("t", array)
    assert one == one  # noqa: PLR0124 (that it can be asked is the point)
    assert one != other
    assert from_array("t", array, "Q8_0") != from_array("t", array, "Q8_0")


def test_bits_of_bfloat16_are_taken_with_a_type():
    numbers = np.linspace(-2, 2, 64, dtype=np.float32).astype(ml_dtypes.bfloat16)
    bits = numbers.view(np.uint16).reshape(2, 32)
    assert np.array_equal(
        from_array("x", bits, "BF16").numpy(), numbers.astype("f4").reshape(2, 32)
    )
    assert from_array("x", bits, "Q8_0").type.name == "Q8_0"
    with pytest.raises(TensorTypeError, match="uint16"):
        from_array("x", bits)
