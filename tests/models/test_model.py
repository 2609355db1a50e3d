"""Tensors show the content of the file, and read no more of it than needed."""

from __future__ import annotations

import itertools
import os
import struct
from collections.abc import Mapping

import numpy as np
import pytest

import ggufkit
from ggufkit import quants
from ggufkit.errors import (
    ClosedError,
    FormatError,
    MissingTensorError,
    ShapeError,
    TensorTypeError,
)
from ggufkit.format.metadata import Metadata, alignment_of
from ggufkit.format.types import GGML_TYPES, tensor_type
from ggufkit.models.model import Model, Tensors
from ggufkit.models.sources import from_array, retyped
from spelled import SPELLINGS, SpelledTensor, Spelling, spelling_id, swapped

KNOWN = [kind for kind in GGML_TYPES.values() if not kind.is_opaque]
PLAIN = [kind for kind in KNOWN if kind.dtype]
GIB = 1 << 30
each_spelling = pytest.mark.parametrize("spelling", SPELLINGS, ids=spelling_id)


def random_bytes(count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, count, np.uint8).tobytes()


def stored(kind, dims, spelling, data):
    """Return a tensor info whose little-endian bytes are `data`, in the byte order of a file."""
    if spelling.byte_order == "big":
        data = swapped(data, kind.fields)
    return SpelledTensor(kind.name.lower(), dims, kind.id, data)


@pytest.fixture
def opened(tmp_path):
    """Return a function that opens a file of given bytes."""
    numbers = itertools.count()
    models = []

    def opened(content):
        path = tmp_path / f"{next(numbers)}.gguf"
        path.write_bytes(content)
        models.append(ggufkit.open(path))
        return models[-1]

    yield opened
    for model in models:
        model.close()


def one_tensor(opened, dims, kind="F32", data=None, spelling=SPELLINGS[-2]):
    """Open a file of one tensor; bytes that are not given are random."""
    kind = tensor_type(kind)
    size = kind.row_bytes(dims[0] if dims else 1) * int(np.prod(dims[1:]))
    data = random_bytes(size) if data is None else data
    model = opened(spelling.file([], [stored(kind, dims, spelling, data)]))
    return model.tensors[kind.name.lower()], data


# What a tensor says of itself.


@each_spelling
def test_tensor_has_name_type_shape_and_place(opened, spelling, tmp_path):
    first = SpelledTensor("first", (4, 3), 0, random_bytes(48))
    second = SpelledTensor("second", (32, 2, 5), 8, random_bytes(340))
    content = spelling.file([("a", ("uint8", 1))], [first, second])
    model = opened(content)
    assert list(model.tensors) == ["first", "second"]
    one, two = model.tensors.values()
    assert (one.name, str(one.type), one.shape, one.nbytes) == ("first", "F32", (3, 4), 48)
    assert (two.name, str(two.type), two.shape, two.nbytes) == ("second", "Q8_0", (5, 2, 32), 340)
    assert one.path == two.path == tmp_path / "0.gguf"
    assert one.offset == model.data_offset == content.index(first.data)
    assert two.offset == content.index(second.data) == one.offset + 64
    assert (one.rows, one.row_bytes, one.elements) == (3, 16, 12)
    assert (two.rows, two.row_bytes, two.elements) == (10, 34, 320)


@each_spelling
def test_model_describes_its_layout(opened, spelling):
    content = spelling.file(
        [("general.alignment", ("uint32", 64))],
        [SpelledTensor("t", (4,), 0, bytes(16))],
        alignment=64,
    )
    model = opened(content)
    assert model.version == spelling.version
    assert model.byte_order == spelling.byte_order
    assert model.alignment == 64
    assert model.data_offset % 64 == 0
    assert model.data_offset + model.data_nbytes == len(content)
    (file,) = model.files
    assert file.nbytes == len(content)
    assert (file.data_offset, file.data_nbytes) == (model.data_offset, 64)
    assert repr(model) == "<Model 0.gguf: 1 keys, 1 tensors>"


# Bytes.


@pytest.mark.parametrize("kind", KNOWN, ids=str)
def test_raw_is_the_memory_map_itself(opened, kind):
    tensor, data = one_tensor(opened, (2 * kind.block_size, 3), kind)
    raw = tensor.raw()
    assert raw.tobytes() == data
    assert raw.shape == (3, 2 * kind.block_bytes)
    assert raw.dtype == np.uint8
    assert not raw.flags.writeable
    assert np.shares_memory(raw, np.frombuffer(tensor.source.file.data, np.uint8))


@pytest.mark.parametrize("kind", PLAIN, ids=str)
@each_spelling
def test_plain_tensors_have_their_own_dtype(opened, kind, spelling):
    tensor, data = one_tensor(opened, (5, 3), kind, spelling=spelling)
    array = tensor.numpy()
    assert array.dtype == np.dtype(kind.dtype)
    assert array.shape == (3, 5)
    assert array.tobytes() == data
    if spelling.byte_order == "little":
        assert np.shares_memory(array, tensor.raw())


@pytest.mark.parametrize("kind", [kind for kind in KNOWN if not kind.dtype], ids=str)
@each_spelling
def test_other_tensors_are_decoded_to_float32(opened, kind, spelling):
    tensor, data = one_tensor(opened, (2 * kind.block_size, 3), kind, spelling=spelling)
    try:
        expected = quants.dequantize(np.frombuffer(data, np.uint8).reshape(3, -1), kind)
    except TensorTypeError:
        with pytest.raises(TensorTypeError):
            tensor.numpy()
        return
    array = tensor.numpy()
    assert array.dtype == np.float32
    assert array.shape == (3, 2 * kind.block_size)
    assert array.tobytes() == expected.tobytes()


@each_spelling
def test_big_endian_twin_holds_the_same_numbers(opened, spelling):
    numbers = [1.5, -2.0, 3.25]
    mark = "<" if spelling.byte_order == "little" else ">"
    infos = [
        SpelledTensor(name, (3,), tensor_type(name).id, struct.pack(f"{mark}3{form}", *numbers))
        for name, form in (("F32", "f"), ("F64", "d"), ("F16", "e"))
    ]
    infos.append(SpelledTensor("I64", (2,), 27, struct.pack(f"{mark}2q", -1, 2**40)))
    model = opened(spelling.file([], infos))
    for name in ("F32", "F64", "F16"):
        assert model.tensors[name].numpy().tolist() == numbers
    assert model.tensors["I64"].numpy().tolist() == [-1, 2**40]


DIMS = [(), (1,), (7,), (7, 3), (7, 3, 2), (7, 3, 2, 2), (2, 2, 2, 2, 2), (0,), (0, 3), (3, 0)]


@pytest.mark.parametrize("dims", DIMS, ids=str)
def test_tensors_have_any_number_of_axes(opened, dims):
    tensor, data = one_tensor(opened, dims)
    assert tensor.shape == dims[::-1]
    assert tensor.numpy().shape == dims[::-1]
    assert tensor.numpy().tobytes() == tensor.raw().tobytes() == data
    assert tensor.raw().shape == (*dims[:0:-1], 4 * (dims[0] if dims else 1))


@pytest.mark.parametrize("number", [4, 5, 31, 37, 77, 2**32 - 1])
@each_spelling
def test_unknown_type_is_opaque_and_its_bytes_are_reachable(opened, number, spelling):
    infos = [
        SpelledTensor("new", (32, 2), number, random_bytes(128)),
        SpelledTensor("t", (2,), 0, bytes(8)),
    ]
    model = opened(spelling.file([], infos))
    tensor = model.tensors["new"]
    assert tensor.type.is_opaque
    assert tensor.type.id == number
    assert tensor.shape == (2, 32)
    assert tensor.nbytes == 128
    assert tensor.raw().tobytes() == infos[0].data
    assert tensor.raw().shape == (128,)
    with pytest.raises(TensorTypeError, match="cannot be decoded"):
        tensor.numpy()
    with pytest.raises(ShapeError, match="no rows to slice"):
        tensor[0:1]
    assert model.tensors["t"].numpy().tolist() == [0, 0]


# Slices.

CUTS = [
    slice(0, 2),
    slice(1, 3),
    slice(-1, None),
    slice(None),
    slice(2, 2),
    slice(3, 1),
    slice(1, 99),
]


@pytest.mark.parametrize("cut", CUTS, ids=str)
@pytest.mark.parametrize("name", ["F32", "BF16", "Q8_0", "Q4_K"])
@pytest.mark.parametrize("order", ["little", "big"])
def test_slices_match_those_of_the_whole_array(opened, name, cut, order):
    kind = tensor_type(name)
    dims = (2 * kind.block_size, 3, 4)
    tensor, _ = one_tensor(opened, dims, kind, spelling=Spelling(3, order))
    part = tensor[cut]
    assert part.shape == (len(range(4)[cut]), 3, dims[0])
    np.testing.assert_array_equal(part.raw(), tensor.raw()[cut])
    np.testing.assert_array_equal(part.numpy(), tensor.numpy()[cut])
    again = part[1:]
    np.testing.assert_array_equal(again.raw(), tensor.raw()[cut][1:])
    if part.nbytes:
        assert part.offset == tensor.offset + range(4)[cut].start * 3 * tensor.row_bytes
        assert np.shares_memory(part.raw(), tensor.raw())


@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_a_single_row_can_be_sliced_between_its_elements(opened, cut):
    tensor, _ = one_tensor(opened, (4,))
    part = tensor[cut]
    np.testing.assert_array_equal(part.numpy(), tensor.numpy()[cut])
    np.testing.assert_array_equal(part[1:].numpy(), tensor.numpy()[cut][1:])


def test_a_single_row_of_blocks_can_be_sliced_between_blocks(opened):
    tensor, _ = one_tensor(opened, (96,), "Q8_0")
    np.testing.assert_array_equal(tensor[32:96].numpy(), tensor.numpy()[32:96])
    with pytest.raises(ShapeError, match="between blocks of 32 only"):
        tensor[0:33]


@pytest.mark.parametrize("index", [None, ..., (0, 1), "x"], ids=str)
def test_accepts_only_rows_of_the_first_axis(opened, index):
    tensor, _ = one_tensor(opened, (4, 4))
    with pytest.raises(ShapeError, match="has no rows"):
        tensor[index]


def test_scalar_tensor_cannot_be_sliced(opened):
    tensor, _ = one_tensor(opened, ())
    with pytest.raises(ShapeError, match="no rows to slice"):
        tensor[0:1]


def test_derived_tensors_can_be_sliced(opened):
    tensor, _ = one_tensor(opened, (64, 6), "Q8_0")
    decoded = retyped(tensor, "F32")
    np.testing.assert_array_equal(decoded[2:4].numpy(), tensor.numpy()[2:4])
    assert decoded[2:4].offset is None
    assert decoded.path is None
    row = from_array("row", np.arange(8, dtype="f4"), "F16")
    np.testing.assert_array_equal(row[2:5].numpy(), [2, 3, 4])


def sparse(path, kind, dims):
    """Make a sparse file with one tensor that takes almost no space on disk."""
    nbytes = kind.row_bytes(dims[0]) * dims[1]
    head = Spelling().file([], [SpelledTensor("t", dims, kind.id, b"")])
    path.write_bytes(head)
    try:
        os.truncate(path, len(head) + nbytes)
    except OSError:
        pytest.skip("this file system has no files so large")
    return len(head), nbytes


@pytest.mark.parametrize("name", ["F32", "BF16", "Q8_0"])
def test_a_slice_of_a_huge_tensor_reads_only_its_rows(tmp_path, name):
    kind = tensor_type(name)
    dims = (1024, 512 * GIB // kind.row_bytes(1024))  # any whole pass over it would take minutes
    start, nbytes = sparse(tmp_path / "vast.gguf", kind, dims)
    with (tmp_path / "vast.gguf").open("r+b") as file:
        file.seek(start + nbytes - kind.row_bytes(1024))
        row = quants.quantize(np.arange(1024, dtype=np.float32)[np.newaxis], kind)
        file.write(row.tobytes())
    with ggufkit.open(tmp_path / "vast.gguf") as model:
        tensor = model.tensors["t"]
        assert tensor.nbytes == nbytes
        last = tensor[-2:]
        expected = quants.dequantize(row, kind)
        np.testing.assert_array_equal(last.numpy(), np.concatenate([0 * expected, expected]))
        assert last.raw().nbytes == 2 * kind.row_bytes(1024)


# Closing.


def test_model_works_with_and_without_a_with_statement(opened, tmp_path):
    opened(Spelling().file([], [SpelledTensor("t", (2,), 0, bytes(8))]))
    with ggufkit.open(tmp_path / "0.gguf") as model:
        tensor = model.tensors["t"]
        values = tensor.numpy()
    model.close()
    for use in (tensor.raw, tensor.numpy, tensor[0:1].raw, lambda: tensor.source.read(0, 1)):
        with pytest.raises(ClosedError, match="was closed"):
            use()
    assert values.tolist() == [0, 0]
    model = ggufkit.open(tmp_path / "0.gguf")
    assert model.tensors["t"].numpy().tolist() == [0, 0]


def test_values_stay_readable_after_closing(opened):
    pairs = [("text", ("string", "a")), ("words", ("array", ("string", ["a", "b"])))]
    model = opened(Spelling().file([*pairs, ("numbers", ("array", ("int8", [1, 2])))]))
    words, numbers, text = (model.metadata[key] for key in ("words", "numbers", "text"))
    model.close()
    assert text == model.metadata["text"] == "a"
    assert numbers.tolist() == model.metadata["numbers"].tolist() == [1, 2]
    assert words[0] == model.metadata["words"][0] == "a"
    assert list(model.metadata) == ["text", "words", "numbers"]
    assert model.metadata.type_name("words") == "array[string]"


# Collections.


def test_tensors_are_an_ordered_mapping():
    tensors = Tensors([from_array(name, np.zeros(2, "f4")) for name in ("b", "a")])
    assert list(tensors) == ["b", "a"]
    assert len(tensors) == 2
    assert "a" in tensors
    assert "c" not in tensors
    assert repr(tensors) == "<2 tensors>"
    assert [tensor.name for tensor in tensors.values()] == ["b", "a"]
    assert tensors.get("c") is None


def test_error_for_a_missing_tensor_names_the_nearest():
    tensors = Tensors([from_array("blk.0.attn_q.weight", np.zeros(2, "f4"))])
    with pytest.raises(
        MissingTensorError, match=r"Did you mean 'blk\.0\.attn_q\.weight'"
    ) as caught:
        tensors["blk.0.attn_k.weight"]
    assert isinstance(caught.value, KeyError)
    with pytest.raises(MissingTensorError):
        tensors[5]


def test_refuses_two_tensors_of_one_name():
    with pytest.raises(ShapeError, match="two tensors have the name 'a'"):
        Tensors([from_array("a", np.zeros(2, "f4"))] * 2)


def test_replace_makes_a_new_model_without_a_file(opened):
    model = opened(
        Spelling(2, "big").file([("a", ("uint8", 1))], [SpelledTensor("t", (2,), 0, bytes(8))])
    )
    changed = model.replace(metadata=model.metadata.updated({"b": 2}))
    assert list(changed.metadata) == ["a", "b"]
    assert list(model.metadata) == ["a"]
    assert changed.tensors["t"] is model.tensors["t"]
    assert (changed.version, changed.byte_order) == (2, "big")
    assert (changed.files, changed.data_offset, changed.data_nbytes) == ((), 0, 0)
    assert repr(changed) == "<Model in memory: 2 keys, 1 tensors>"
    assert list(model.replace(tensors=[]).tensors) == []
    changed.close()
    assert model.tensors["t"].raw().tobytes() == bytes(8)
    model.close()
    for owner in (model, changed):
        with pytest.raises(ClosedError):
            owner.tensors["t"].raw()


@pytest.mark.parametrize("value", [0, 1, 4, 7, 12, 48, np.uint64(64), np.int32(64), 64.0, "64"])
def test_refuses_an_impossible_alignment(value):
    with pytest.raises(FormatError, match=r"general\.alignment"):
        alignment_of(Metadata({"general.alignment": value}))


@pytest.mark.parametrize("value", [8, 16, 32, 64, 4096, 2**31])
def test_alignment_is_a_power_of_two_from_8(value):
    model = Model(Metadata({"general.alignment": value}), Tensors())
    assert model.alignment == value
    assert Model(Metadata(), Tensors()).alignment == 32


def test_replace_takes_plain_metadata(tmp_path):
    model = ggufkit.model({"a": np.ones((2, 2), np.float32)})
    (path,) = ggufkit.write(model.replace(metadata={"general.name": "x"}), tmp_path / "m.gguf")
    with ggufkit.open(path) as written:
        assert written.metadata["general.name"] == "x"


def test_masked_arrays_are_refused():
    masked = np.ma.masked_array(np.ones((2, 2), np.float32), [[0, 1], [0, 0]])
    with pytest.raises(TensorTypeError, match="masked"):
        ggufkit.model({"a": masked})


def test_model_is_a_mapping_of_names_to_tensors():
    model = ggufkit.model({"a": np.ones(3, np.float32), "b": np.zeros((2, 2), np.float32)})
    assert isinstance(model, Mapping)
    assert (len(model), list(model), list(model.keys())) == (2, ["a", "b"], ["a", "b"])
    assert dict(model.items()) == dict(model.tensors) == dict(model)
    assert model.get("c") is None
    assert list(model.values()) == [model["a"], model["b"]]
    assert ggufkit.model(model, model.metadata)["b"].shape == (2, 2)


def test_model_without_tensors_is_true_and_equals_only_itself():
    one, other = ggufkit.model({}), ggufkit.model({})
    assert one
    assert one != other
    assert len({one, other, one}) == 2


@pytest.mark.parametrize("name", ["metadata", "tensors", "version", "byte_order", "files"])
def test_parts_of_a_model_cannot_be_set(name):
    model = ggufkit.model({})
    with pytest.raises(AttributeError, match=rf"`{name}` of a model .*replace"):
        setattr(model, name, None)
