"""Bit identity with ggml on every instruction set, and how the Python functions behave."""

from __future__ import annotations

import itertools
import threading

import ml_dtypes
import numpy as np
import pytest

import fuzz
import ggufkit._native as _native
import oracle
from ggufkit import quants
from ggufkit.errors import GGUFError, ShapeError, TensorTypeError, ValueTypeError
from ggufkit.format.types import GGML_TYPES, tensor_type
from ggufkit.quants import parallel

CODECS = {row[0]: row for row in _native.codecs("portable") if row[0] in GGML_TYPES}
DECODED = [GGML_TYPES[number].name for number in CODECS]
ENCODED = [GGML_TYPES[number].name for number, row in CODECS.items() if row[4]]
INTEGERS = ["I8", "I16", "I32", "I64"]
ALWAYS_ENCODED = [name for name in ENCODED if name not in oracle.GRID_TYPES]
# ggml quantizes to what is not an integer or a double.
GGML_ENCODES = [name for name in ALWAYS_ENCODED if name not in {"F64", *INTEGERS}]
GGML_DECODES = [name for name in DECODED if name not in {"F32", "F64", "Q8_1", *INTEGERS}]
GGML_VALIDATES = [name for name in DECODED if name != "Q8_1"]


@pytest.fixture(params=quants.instruction_sets())
def isa(request, monkeypatch):
    """Each instruction set that this machine runs, forced."""
    monkeypatch.setenv("GGUFKIT_ISA", request.param)
    return request.param


def sample(character, name, seed=0):
    """Return an array of a character for a type, whose blocks leave every tile ragged.

    K types read the bits of a NaN's payload. Which of two NaNs survives a sum is up to the
    compiler of ggml, so here all are the default one.
    """
    x = oracle.array(character, *ragged_shape(name), seed)
    if tensor_type(name).block_size == 256:
        x[np.isnan(x)] = np.nan
    return x


def ragged_shape(name):
    """Return a shape whose blocks fill tiles of every lane count and leave some over."""
    block = tensor_type(name).block_size
    return (7, 96) if block == 1 else (7, 7 * block)


def random_bytes(name, seed=0):
    kind = tensor_type(name)
    blocks = 96 if kind.block_size == 1 else 29
    random = np.random.default_rng(seed)
    return random.integers(0, 256, (5, kind.block_bytes * blocks), dtype=np.uint8)


@pytest.mark.real
@pytest.mark.parametrize("library", oracle.LIBRARIES)
@pytest.mark.parametrize("name", GGML_ENCODES)
def test_encoding_gives_the_bytes_of_ggml(isa, name, library):
    kind = tensor_type(name)
    for character, seed in itertools.product(oracle.CHARACTERS, range(3)):
        x = sample(character, name, seed)
        ours, theirs = quants.encode_rows(x, name), oracle.encode(library, x, kind)
        np.testing.assert_array_equal(ours, theirs, f"{character}, seed {seed}")


@pytest.mark.real
def test_last_round_of_the_search_of_q3_k_gives_the_bytes_of_ggml(isa):
    x = oracle.array("normal", 64, 256, 109)  # in few arrays a fifth round moves a level
    theirs = oracle.encode("llama.cpp", x, tensor_type("Q3_K"))
    np.testing.assert_array_equal(quants.encode_rows(x, "Q3_K"), theirs)


@pytest.mark.real
@pytest.mark.parametrize("library", oracle.LIBRARIES)
@pytest.mark.parametrize("name", GGML_DECODES)
def test_decoding_any_bytes_gives_the_floats_of_ggml(isa, name, library):
    for seed in range(8):
        data = random_bytes(name, seed)
        theirs = oracle.decode(library, data, tensor_type(name))
        assert oracle.same_floats(quants.decode_rows(data, name), theirs), f"seed {seed}"


@pytest.mark.real
@pytest.mark.parametrize("name", GGML_VALIDATES)
def test_validation_matches_ggml(isa, name):
    kind = tensor_type(name)
    data = random_bytes(name).reshape(-1, kind.block_bytes)
    bad = [not oracle.is_valid("llama.cpp", block, kind) for block in data]
    assert quants.validate(data, name) == (bad.index(True) if any(bad) else None)
    assert quants.validate(data[np.logical_not(bad)], name) is None


@pytest.mark.real
@pytest.mark.parametrize("library", oracle.LIBRARIES)
def test_huge_numbers_in_ternary_types_give_the_bytes_of_ggml(isa, library):
    data = (fuzz.SEEDS / "kernels" / "ternary-overflow").read_bytes()[2:]
    x = np.frombuffer(data, "<f4", len(data) // 1024 * 256).reshape(-1, 256).copy()
    x[np.isnan(x)] = np.nan
    assert np.isnan(x).any()
    theirs = oracle.encode(library, x, tensor_type("TQ1_0"))
    np.testing.assert_array_equal(quants.encode_rows(x, "TQ1_0"), theirs)


@pytest.mark.parametrize("name", ALWAYS_ENCODED)
def test_every_instruction_set_encodes_like_the_portable_one(isa, name, monkeypatch):
    characters = {"zeros", "negative zeros"} if name in INTEGERS else oracle.CHARACTERS
    for character in characters:
        x = sample(character, name)
        ours = quants.encode_rows(x, name)
        monkeypatch.setenv("GGUFKIT_ISA", "portable")
        np.testing.assert_array_equal(ours, quants.encode_rows(x, name), character)
        monkeypatch.setenv("GGUFKIT_ISA", isa)


@pytest.mark.parametrize("name", DECODED)
def test_streaming_stores_decode_to_the_same_floats(isa, name):
    data = random_bytes(name)
    cached = quants.dequantize(data, name)
    streamed = np.zeros_like(quants.dequantize(data, name))
    _native.decode(
        tensor_type(name).id, data.reshape(-1), streamed.reshape(-1), isa=isa, streaming=True
    )
    assert oracle.same_floats(streamed, cached)


def test_unaligned_outputs_receive_the_same_floats(isa):
    data = random_bytes("Q8_0")
    elements = quants.dequantize(data, "Q8_0")
    memory = np.zeros(elements.size + 1, np.float32)
    _native.decode(8, data.reshape(-1), memory[1:], isa=isa, streaming=True)
    assert oracle.same_floats(memory[1:].reshape(elements.shape), elements)


@pytest.mark.parametrize("rows", range(1, 40))
def test_each_block_encodes_the_same_alone_or_among_others(isa, rows):
    x = oracle.array("normal", rows, 32, rows)
    alone = np.concatenate([quants.encode_rows(row[np.newaxis], "Q5_0") for row in x])
    np.testing.assert_array_equal(quants.encode_rows(x, "Q5_0"), alone)


@pytest.mark.parametrize("name", ["Q8_0", "Q4_1", "F16", "BF16", "F64"])
@pytest.mark.parametrize("threads", [None, 1, 2, 5])
def test_result_does_not_depend_on_threads_or_pieces(name, threads, monkeypatch):
    x = oracle.array("normal", 33, 1024)
    once = quants.encode_rows(x, name)
    monkeypatch.setattr(parallel, "TASK", 3000)
    np.testing.assert_array_equal(quants.quantize(x, name, threads=threads), once)
    np.testing.assert_array_equal(quants.quantize(x[0], name, threads=threads), once[0])
    monkeypatch.setattr(parallel, "TASK", 100)
    np.testing.assert_array_equal(quants.quantize(x, name, threads=threads), once)
    back = quants.dequantize(once, name, threads=threads)
    np.testing.assert_array_equal(back, quants.decode_rows(once, name))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64, ">f4", ">f8"])
@pytest.mark.parametrize("name", ["Q8_0", "Q4_0", "F32", "F16", "BF16"])
def test_other_floats_are_converted_during_encoding(name, dtype, monkeypatch):
    monkeypatch.setattr(parallel, "TASK", 64)
    x = oracle.array("heavy tails", 5, 96).astype(dtype)
    expected = quants.encode_rows(x.astype(np.float32), name)
    np.testing.assert_array_equal(quants.quantize(x, name), expected)


def test_strided_arrays_are_not_copied_as_a_whole(monkeypatch):
    x = oracle.array("normal", 8 * 6, 64).reshape(8, 6, 64)
    monkeypatch.setattr(parallel, "TASK", 128)
    monkeypatch.setattr(np, "copy", None)
    for view in (x[::2], x[:, ::-1], x[:, 1:4, 32:], x.transpose(1, 0, 2), x[:, :, ::2]):
        expected = quants.encode_rows(view.copy().reshape(-1, view.shape[-1]), "Q4_0")
        packed = quants.quantize(view, "Q4_0")
        assert packed.shape == (*view.shape[:-1], view.shape[-1] // 32 * 18)
        np.testing.assert_array_equal(packed.reshape(expected.shape), expected)
    data = quants.quantize(x, "Q4_0")
    np.testing.assert_array_equal(
        quants.dequantize(data[::2, ::-1], "Q4_0"), quants.dequantize(data, "Q4_0")[::2, ::-1]
    )


@pytest.mark.parametrize("name", [name for name in ENCODED if tensor_type(name).dtype])
def test_a_types_own_dtype_keeps_its_exact_bytes(name):
    dtype = np.dtype(tensor_type(name).dtype)
    x = np.random.default_rng(0).integers(0, 256, 64 * dtype.itemsize, np.uint8).view(dtype)
    np.testing.assert_array_equal(quants.quantize(x, name), x.view(np.uint8))
    np.testing.assert_array_equal(quants.quantize(x[::2], name), x[::2].copy().view(np.uint8))


def test_numbers_between_two_of_bfloat16_round_to_the_even_one(isa):
    upper = np.arange(0x7F80, dtype=np.uint32)
    x = (upper << 16 | 0x8000).view(np.float32).reshape(-1, 32)
    packed = quants.encode_rows(np.concatenate([x, -x]), "BF16").view(np.uint16).reshape(2, -1)
    np.testing.assert_array_equal(packed[0], upper + upper % 2)
    np.testing.assert_array_equal(packed[1], packed[0] | 0x8000)


def test_bfloat16_arrays_keep_the_payload_of_nan():
    x = np.arange(2**16, dtype=np.uint16)
    packed = quants.quantize(x.view(ml_dtypes.bfloat16), "BF16")
    np.testing.assert_array_equal(packed.view(np.uint16), x)


@pytest.mark.parametrize("name", INTEGERS)
def test_largest_and_smallest_integers_are_unchanged(name):
    limits = np.iinfo(tensor_type(name).dtype)
    x = np.array([limits.min, limits.max, 0, -1])
    np.testing.assert_array_equal(quants.quantize(x, name).view(limits.dtype), x)


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floats_convert_to_integers_only_if_exact(isa, name, dtype):
    limits = np.iinfo(tensor_type(name).dtype)
    with np.errstate(over="ignore"):
        good = np.array([max(limits.min, np.finfo(dtype).min), -5, -0.0, 100]).astype(dtype)
    assert quants.quantize(good, name).view(limits.dtype).tolist() == good.tolist()
    with np.errstate(over="ignore"):
        beyond = [-2.0 * limits.min, 2.0 * limits.min, 0.5, np.nan, np.inf, -np.inf]
        beyond = np.array(beyond).astype(dtype)
    for bad in beyond:
        x = np.zeros((3, 4), dtype)
        x[2, 1] = bad
        with pytest.raises(ValueTypeError, match=r"row 2, column 1"):
            quants.quantize(x, name)


def test_refuses_the_first_float_beyond_an_integer_type():
    for name in INTEGERS:
        limits = np.iinfo(tensor_type(name).dtype)
        for dtype in (np.float32, np.float64):
            with pytest.raises(ValueTypeError):
                quants.quantize(np.array([-float(limits.min)], dtype), name)


@pytest.mark.parametrize(
    ("dtype", "name"), [(np.int32, "I8"), (np.uint64, "I64"), (np.uint16, "I16"), (np.int64, "I8")]
)
def test_names_integers_that_do_not_fit_and_their_place(dtype, name):
    limits = np.iinfo(dtype)
    x = np.zeros((4, 3), dtype)
    np.testing.assert_array_equal(
        quants.quantize(x, name),
        np.zeros((4, 3 * x.itemsize))[:, : 3 * tensor_type(name).block_bytes],
    )
    x[3, 2] = limits.max
    with pytest.raises(
        ValueTypeError, match=rf"{name} does not hold {limits.max} .row 3, column 2"
    ):
        quants.quantize(x, name)


@pytest.mark.parametrize("dtype", [">f8", "<f8", ">i8", ">f2"])
def test_a_types_own_dtype_keeps_its_bits_in_any_byte_order(dtype):
    own = next(t for t in GGML_TYPES.values() if t.dtype == dtype[1:])
    x = np.random.default_rng(0).integers(0, 256, 64, np.uint8).view(dtype)
    np.testing.assert_array_equal(quants.quantize(x, own).view(dtype[1:]), x)


@pytest.mark.parametrize("name", ["Q8_0", "F32", "F16", "F64"])
def test_uint16_holds_the_bits_of_bfloat16(name):
    x = oracle.array("normal", 3, 64).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(quants.quantize(x.view("u2"), name), quants.quantize(x, name))
    swapped = x.view("u2").astype(">u2")
    np.testing.assert_array_equal(quants.quantize(swapped, name), quants.quantize(x, name))
    np.testing.assert_array_equal(quants.quantize(x.view("u2"), "BF16"), x.view(np.uint8))


@pytest.mark.parametrize("dtype", [np.int32, bool, complex, "S4", object])
def test_refuses_dtypes_that_are_not_floats(dtype):
    with pytest.raises(ValueTypeError, match="cannot be packed as Q8_0"):
        quants.quantize(np.zeros(32, dtype), "Q8_0")


@pytest.mark.parametrize("function", [quants.quantize, quants.encode_rows])
def test_widths_must_divide_into_blocks(function):
    with pytest.raises(ShapeError, match="33"):
        function(np.zeros((2, 33), np.float32), "Q8_0")
    with pytest.raises(ShapeError, match="axis"):
        function(np.float32(1), "F32")


@pytest.mark.parametrize("function", [quants.dequantize, quants.decode_rows, quants.validate])
def test_packed_rows_must_divide_into_blocks(function):
    with pytest.raises(ShapeError, match="35"):
        function(np.zeros((2, 35), np.uint8), "Q8_0")
    with pytest.raises(ValueTypeError, match="uint8"):
        function(np.zeros(34, np.int8), "Q8_0")
    with pytest.raises(ValueTypeError, match="bytes"):
        function(bytes(34), "Q8_0")


@pytest.mark.parametrize("name", ["Q4_2", 31, 77])
def test_opaque_types_have_no_codec(name):
    with pytest.raises(TensorTypeError, match="cannot be encoded"):
        quants.quantize(np.zeros(32, np.float32), name)
    with pytest.raises(TensorTypeError, match="cannot be decoded"):
        quants.dequantize(np.zeros(32, np.uint8), name)
    with pytest.raises(TensorTypeError):
        quants.check_requantize(name, "Q8_0")
    with pytest.raises(TensorTypeError):
        quants.check_requantize("Q8_0", name)


@pytest.mark.parametrize("name", sorted(set(DECODED) - set(ENCODED)))
def test_error_says_that_a_type_can_only_be_decoded(name):
    with pytest.raises(TensorTypeError, match=f"{name} cannot be encoded.*Q8_0"):
        quants.quantize(np.zeros(256, np.float32), name)
    with pytest.raises(TensorTypeError, match=name):
        quants.check_requantize("F32", name)


@pytest.mark.real
@pytest.mark.parametrize("name", [name for name in DECODED if name.startswith("IQ")])
def test_all_points_of_a_grid_match_ggml(name):
    """Every byte takes every value, beside the same and beside random others."""
    kind = tensor_type(name)
    data = random_bytes(name).reshape(-1)[: kind.block_bytes * 64].reshape(64, -1)
    for value in range(256):
        data[:, 2 + value % 2 :: 2] = value
        assert oracle.same_floats(
            quants.decode_rows(data, name), oracle.decode("llama.cpp", data, kind)
        ), f"byte {value}"


@pytest.mark.parametrize("type", [None, 12.0, np.float16, "Q4_K_M"])
def test_refuses_an_unknown_type_and_lists_the_known_ones(type):
    with pytest.raises(TensorTypeError, match=r"unknown tensor type.*Q4_K, "):
        quants.quantize(np.zeros(256, np.float32), type)


def test_numpy_integers_can_name_types():
    x = oracle.array("normal", 2, 256)
    np.testing.assert_array_equal(quants.quantize(x, np.int64(12)), quants.quantize(x, "Q4_K"))


@pytest.mark.parametrize("encode", [quants.quantize, quants.encode_rows])
def test_refuses_complex_numbers(encode):
    with pytest.raises(ValueTypeError, match="complex64 cannot be packed"):
        encode(np.zeros((1, 256), np.complex64), "Q4_K")


def test_rows_may_be_lists():
    packed = quants.encode_rows([[1.0] * 32], "Q8_0")
    np.testing.assert_array_equal(packed, quants.quantize(np.ones((1, 32), np.float32), "Q8_0"))


@pytest.mark.parametrize("data", [b"1234", [1, 2], np.uint8(3)])
def test_refuses_packed_data_of_another_class_and_names_it(data):
    with pytest.raises(ValueTypeError, match=f"not of class {type(data).__name__}"):
        quants.dequantize(data, "Q8_0")


def test_refuses_unknown_names():
    with pytest.raises(TensorTypeError, match="Q9_Z"):
        quants.quantize(np.zeros(32, np.float32), "Q9_Z")


@pytest.mark.parametrize("shape", [(0,), (0, 32), (3, 0), (2, 0, 64)])
def test_empty_arrays_stay_empty(isa, shape):
    packed = quants.quantize(np.zeros(shape, np.float32), "Q8_0")
    assert packed.shape == (*shape[:-1], shape[-1] // 32 * 34)
    assert quants.dequantize(packed, "Q8_0").shape == shape


@pytest.mark.parametrize("threads", [0, -1, 1.5, "2"])
def test_threads_must_be_a_positive_integer(threads):
    with pytest.raises(ValueTypeError, match=f"^{threads!r} is not a possible number of threads"):
        quants.quantize(np.zeros(32, np.float32), "Q8_0", threads=threads)


def test_fills_or_refuses_the_output_of_the_caller():
    x = oracle.array("normal", 4, 64)
    out = np.zeros((4, 68), np.uint8)
    assert quants.encode_rows(x, "Q8_0", out) is out
    np.testing.assert_array_equal(out, quants.quantize(x, "Q8_0"))
    floats = np.zeros((4, 64), np.float32)
    assert quants.decode_rows(out, "Q8_0", floats) is floats
    np.testing.assert_array_equal(floats, quants.dequantize(out, "Q8_0"))


@pytest.mark.parametrize("name", ["Q8_0", "F32", "F16"])
def test_every_function_fills_the_output_of_the_caller(name):
    x = oracle.array("normal", 4, 64)
    packed = np.zeros((4, tensor_type(name).row_bytes(64)), np.uint8)
    assert quants.quantize(x, name, out=packed) is packed
    np.testing.assert_array_equal(packed, quants.quantize(x, name))
    for dtype in (np.float32, np.float16, ml_dtypes.bfloat16):
        floats = np.zeros((4, 64), dtype)
        assert quants.dequantize(packed, name, dtype=dtype, out=floats) is floats
        np.testing.assert_array_equal(floats, quants.dequantize(packed, name, dtype=dtype))
    for target in ("Q4_0", name):
        other = np.zeros((4, tensor_type(target).row_bytes(64)), np.uint8)
        assert quants.requantize(packed, name, target, out=other) is other
        np.testing.assert_array_equal(other, quants.requantize(packed, name, target))


def wrong_outputs():
    x = np.zeros((4, 64), np.float32)
    good = np.zeros((4, 68), np.uint8)
    sealed = good.copy()
    sealed.flags.writeable = False
    inside = x.view(np.uint8).reshape(-1)[: good.size].reshape(good.shape)
    yield x, good[:3], r"of shape \(3, 68\).*Pass uint8 of shape \(4, 68\)"
    yield x, good.view(np.int8), "int8"
    yield x, bytearray(4 * 68), "is of class bytearray. Pass uint8"
    yield x, np.zeros((8, 68), np.uint8)[::2], "contiguous"
    yield x, sealed, "writable"
    yield x, inside, "overlaps"


@pytest.mark.parametrize(("x", "out", "message"), list(wrong_outputs()))
def test_refuses_outputs_that_do_not_fit_and_says_what_does(x, out, message):
    with pytest.raises(ShapeError, match=message):
        quants.quantize(x, "Q8_0", out=out)
    with pytest.raises(ShapeError, match=message):
        quants.encode_rows(x, "Q8_0", out)
    with pytest.raises(ShapeError, match=message):
        quants.requantize(x.view(np.uint8), "F32", "Q8_0", out=out)


def test_unknown_instruction_set_error_lists_the_known_ones(monkeypatch):
    monkeypatch.setenv("GGUFKIT_ISA", "v9")
    with pytest.raises(GGUFError, match=r"'v9'.*portable"):
        quants.instruction_set()


def test_the_fastest_instruction_set_is_the_default(monkeypatch):
    monkeypatch.delenv("GGUFKIT_ISA", raising=False)
    assert quants.instruction_set() == quants.instruction_sets()[0]
    assert quants.instruction_sets()[-1] == "portable"


def test_an_error_in_one_thread_stops_the_others(monkeypatch):
    monkeypatch.setattr(parallel, "TASK", 32)
    x = np.zeros((4000, 32), np.float32)
    x[1] = 0.5
    before = set(threading.enumerate())  # other tests may have left some
    with pytest.raises(ValueTypeError, match="row 1, column 0"):
        quants.quantize(x, "I8", threads=3)
    assert set(threading.enumerate()) <= before


def native_calls():
    floats, packed = np.zeros(64, np.float32), np.zeros(68, np.uint8)
    yield "width", lambda: _native.encode(8, floats, packed, 0, None, "portable")
    yield "width", lambda: _native.encode(8, floats, packed, 48, None, "portable")
    yield "blocks", lambda: _native.encode(8, floats[:63], packed, 32, None, "portable")
    yield "blocks", lambda: _native.encode(8, floats, packed[:34], 32, None, "portable")
    yield "blocks", lambda: _native.decode(8, packed, floats[:32], streaming=False, isa="portable")
    yield "blocks", lambda: _native.decode(8, packed[:67], floats, streaming=False, isa="portable")
    yield "blocks", lambda: _native.validate(8, packed[:67], "portable")
    weights = np.zeros(31, np.float32)
    yield "weight", lambda: _native.encode(8, floats, packed, 32, weights, "portable")
    yield "codec", lambda: _native.encode(99, floats, packed, 32, None, "portable")
    yield "v9", lambda: _native.encode(8, floats, packed, 32, None, "v9")
    halves, tile = np.zeros(128, np.uint8), np.zeros(32, np.float32)
    for word, width, *arrays in (
        ("width", 0, halves, packed, None, tile),
        ("width", 16, halves, packed, None, tile),
        ("blocks", 32, halves, packed[:34], None, tile),
        ("rows", 32, halves[:127], packed, None, tile),
        ("rows", 32, halves, packed, None, tile[:31]),
        ("weight", 32, halves, packed, weights, tile),
    ):
        source, target, *memory = arrays
        arguments = (1, source, 8, target, width, *memory, "portable")
        yield word, lambda arguments=arguments: _native.requantize(*arguments)
    shifted = np.zeros(65 * 4, np.uint8)[1:257].view(np.float32)
    yield "aligned", lambda: _native.encode(8, shifted, packed, 32, None, "portable")


@pytest.mark.parametrize(("word", "call"), list(native_calls()))
def test_the_native_core_checks_every_size_itself(word, call):
    with pytest.raises(ValueError, match=word):
        call()
