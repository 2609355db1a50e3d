"""GGUFReader says what gguf-py's class says, and shares its memory with the file."""

from __future__ import annotations

import copy
import pickle
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import forge
from gguf_readers import assert_same_field, assert_same_reader
from ggufkit.compat import gguf as ours
from ggufkit.errors import (
    FormatError,
    LimitError,
    MissingExtraError,
    NotGGUFError,
    TruncatedError,
)

CORPUS = forge.corpus()
# What gguf-py 0.19.0 reads: newer versions refuse the first, and llama.cpp both.
STRICTER = ("exceeds GGML_MAX_DIMS", "array element type")

NUMBERS = {
    gguf.GGUFValueType.UINT8: st.integers(0, 2**8 - 1),
    gguf.GGUFValueType.INT8: st.integers(-(2**7), 2**7 - 1),
    gguf.GGUFValueType.UINT16: st.integers(0, 2**16 - 1),
    gguf.GGUFValueType.INT16: st.integers(-(2**15), 2**15 - 1),
    gguf.GGUFValueType.UINT32: st.integers(0, 2**32 - 1),
    gguf.GGUFValueType.INT32: st.integers(-(2**31), 2**31 - 1),
    gguf.GGUFValueType.FLOAT32: st.floats(width=32),
    gguf.GGUFValueType.BOOL: st.booleans(),
    gguf.GGUFValueType.UINT64: st.integers(0, 2**64 - 1),
    gguf.GGUFValueType.INT64: st.integers(-(2**63), 2**63 - 1),
    gguf.GGUFValueType.FLOAT64: st.floats(),
    gguf.GGUFValueType.STRING: st.text(max_size=5),
}
KEYS = st.text("abcxyz_.é", min_size=1, max_size=8)


def values() -> st.SearchStrategy:
    """Return triples of a value, its type and the type of its elements."""
    scalars = [st.tuples(inner, st.just(kind), st.none()) for kind, inner in NUMBERS.items()]
    arrays = [
        st.tuples(
            st.lists(inner, min_size=1, max_size=4),
            st.just(gguf.GGUFValueType.ARRAY),
            st.just(kind),
        )
        for kind, inner in NUMBERS.items()
    ]
    nested = st.tuples(
        st.lists(
            st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=2), min_size=1, max_size=3),
            min_size=1,
            max_size=3,
        ),
        st.just(gguf.GGUFValueType.ARRAY),
        st.none(),
    )
    return st.one_of(*scalars, *arrays, nested)


DTYPES = st.sampled_from(
    [np.float16, np.float32, np.float64, np.int8, np.int16, np.int32, np.int64]
)
SHAPES = st.lists(st.integers(1, 3), min_size=1, max_size=4)


@given(
    metadata=st.dictionaries(KEYS, values(), max_size=5),
    tensors=st.dictionaries(KEYS, st.tuples(DTYPES, SHAPES), max_size=4),
    alignment=st.sampled_from([None, 8, 32, 256]),
    endianess=st.sampled_from(gguf.GGUFEndian),
)
def test_random_files_read_the_same(tmp_path_factory, metadata, tensors, alignment, endianess):
    path = tmp_path_factory.mktemp("random") / "random.gguf"
    writer = gguf.GGUFWriter(path, "llama", endianess=endianess)
    if alignment:
        writer.add_custom_alignment(alignment)
    for key, value in metadata.items():
        writer.add_key_value(key, *value)
    for name, (dtype, shape) in tensors.items():
        writer.add_tensor(name, np.arange(np.prod(shape), dtype=dtype).reshape(shape))
    _finish(writer)
    assert_same_reader(ours.GGUFReader(path), gguf.GGUFReader(path))


def _finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("name", sorted(CORPUS))
def test_forged_files_read_the_same_or_fail_in_both(tmp_path, name):
    path = forge.write(CORPUS[name], tmp_path)
    mine, error = _opened(ours.GGUFReader, path)
    if error:
        assert isinstance(error, ValueError | OSError), error
    if isinstance(error, TruncatedError | LimitError):
        return  # gguf-py may take all memory for what such a file announces
    theirs, their_error = _opened(gguf.GGUFReader, path)
    if theirs is not None and any(text in str(error) for text in STRICTER):
        return
    assert (mine is None) == (theirs is None), (error, their_error)
    if mine is not None:
        assert_same_reader(mine, theirs)
    elif isinstance(their_error, KeyError | UnicodeError):
        assert isinstance(error, type(their_error))


def _opened(reader: type, path: Path) -> tuple[object, Exception | None]:
    try:
        return reader(path), None
    except Exception as error:  # noqa: BLE001 (any error is the answer)
        return None, error


@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_real_models_read_the_same(name, request):
    path = request.getfixturevalue(name)
    mine = ours.GGUFReader(path)
    tokens = mine.fields["tokenizer.ggml.tokens"]
    assert tokens.contents(slice(0, 5)) == tokens.contents()[:5]
    if name == "smollm2":  # gguf-py takes half a minute for the other
        assert_same_reader(mine, gguf.GGUFReader(path))
    assert_same_field(mine.fields["general.name"], mine.fields["general.name"])


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 3)
    writer.add_array("names", ["a", "bc"])
    writer.add_array("numbers", [1, 2, 3])
    writer.add_tensor("weight", np.arange(6, dtype=np.float32).reshape(2, 3))
    _finish(writer)
    return path


def test_mode_r_plus_writes_through_parts_and_data(small):
    reader = ours.GGUFReader(small, "r+")
    field = reader.get_field("llama.block_count")
    field.parts[field.data[0]][0] = 7
    field = reader.fields["numbers"]
    field.parts[field.data[1]][0] = 9
    reader.tensors[0].data[1, 2] = -1
    assert field.contents() == [1, 9, 3]
    del reader, field
    again = gguf.GGUFReader(small)
    assert again.fields["llama.block_count"].contents() == 7
    assert again.fields["numbers"].contents() == [1, 9, 3]
    assert again.tensors[0].data[1, 2] == -1


def test_mode_c_changes_memory_only(small):
    before = small.read_bytes()
    reader = ours.GGUFReader(small, "c")
    reader.tensors[0].data[:] = 5
    assert reader.tensors[0].data.sum() == 30
    assert small.read_bytes() == before


def test_parts_are_the_same_objects_each_time(small):
    field = ours.GGUFReader(small).fields["names"]
    assert field.parts is field.parts
    assert isinstance(field.parts, list)
    assert isinstance(field.data, list)
    assert [bytes(field.parts[i]).decode() for i in field.data] == ["a", "bc"]


def test_fields_are_tuples_as_named_tuples_are(small):
    field = ours.GGUFReader(small).fields["names"]
    assert isinstance(field, tuple)
    assert isinstance(field, ours.ReaderField)
    assert field._asdict()["name"] == "names"
    assert field._replace(name="other").name == "other"
    assert repr(field).startswith("ReaderField(offset=")
    assert "array" in repr(field)
    assert copy.copy(field).contents() == ["a", "bc"]
    assert pickle.loads(pickle.dumps(field)).contents() == ["a", "bc"]


def test_field_made_by_hand_has_contents():
    part = np.frombuffer(b"hey", np.uint8)
    kinds = [ours.GGUFValueType.STRING]
    assert ours.ReaderField(0, "k", [part], [0], kinds).contents() == "hey"
    assert ours.ReaderField(0, "k").contents() is None


def test_empty_array_has_one_type_and_no_data(tmp_path):
    path = tmp_path / "empty.gguf"
    key = struct.pack("<Q1s", 1, b"k")
    head = struct.pack("<4sIQQ", b"GGUF", 3, 0, 1)
    path.write_bytes(head + key + struct.pack("<IIQ", 9, 8, 0))
    field = ours.GGUFReader(path).fields["k"]
    assert field.types == [ours.GGUFValueType.ARRAY]
    assert field.contents() == []
    assert_same_reader(ours.GGUFReader(path), gguf.GGUFReader(path))


def test_strings_that_are_not_utf8_fail_as_in_gguf_py(tmp_path):
    path = tmp_path / "bad.gguf"
    head = struct.pack("<4sIQQ", b"GGUF", 3, 0, 1)
    texts = struct.pack("<Q1sQ2s", 1, b"a", 2, b"\xff\xfe")
    path.write_bytes(head + struct.pack("<Q1sIIQ", 1, b"k", 9, 8, 2) + texts)
    field = ours.GGUFReader(path).fields["k"]
    with pytest.raises(UnicodeDecodeError):
        field.contents()
    assert field.contents(0) == "a"
    assert bytes(field.parts[field.data[1]]) == b"\xff\xfe"


def test_errors_name_the_file_the_place_and_a_remedy(tmp_path):
    page = tmp_path / "page.gguf"
    page.write_text("<!doctype html>")
    with pytest.raises(NotGGUFError, match=r"page\.gguf: GGUF magic invalid: this is a web page"):
        ours.GGUFReader(page)
    twice = tmp_path / "twice.gguf"
    pair = struct.pack("<Q1sIB", 1, b"k", 0, 7)
    twice.write_bytes(struct.pack("<4sIQQ", b"GGUF", 3, 0, 2) + pair + pair)
    with pytest.raises(KeyError, match="Duplicate k already in list") as caught:
        ours.GGUFReader(twice)
    assert isinstance(caught.value, FormatError)
    assert caught.value.offset == 24 + len(pair)


def test_without_gguf_the_error_names_the_extra(monkeypatch):
    import importlib
    import sys

    for name in [name for name in sys.modules if name.startswith("ggufkit.compat.gguf")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(MissingExtraError, match=r"ggufkit\[compat\]"):
        importlib.import_module("ggufkit.compat.gguf")


# Programs derive from GGUFReader to read headers of files whose tensors are not there.


@pytest.fixture
def cut(small):
    """Return the file with its header only."""
    data = small.read_bytes()
    small.write_bytes(data[: gguf.GGUFReader(small).data_offset])
    return small


@pytest.mark.parametrize("reader", [ours.GGUFReader, gguf.GGUFReader], ids=["ours", "gguf-py"])
def test_a_program_may_leave_out_the_tensors(cut, reader):
    class HeaderReader(reader):
        def _build_tensors(self, start_offs, fields):
            self.arguments = (start_offs, [bytes(field.parts[1]) for field in fields])
            name_len, _, n_dims, dims, kind, offset = fields[0].parts
            self.raw = [part.tolist() for part in (name_len, n_dims, dims, kind, offset)]

    official = HeaderReader(cut)
    assert official.arguments == (cut.stat().st_size, [b"weight"])
    assert official.raw == [[6], [2], [3, 2], [0], [0]]
    assert official.tensors == []
    assert official.fields["names"].contents() == ["a", "bc"]
    with pytest.raises(ValueError, match=r"reshape|incomplete"):
        reader(cut)


@pytest.mark.parametrize("reader", [ours.GGUFReader, gguf.GGUFReader], ids=["ours", "gguf-py"])
def test_a_program_may_read_the_file_its_own_way(cut, reader):
    class ZeroReader(reader):
        def _get(self, offset, dtype, count=1, override_order=None):
            if hasattr(self, "data_offset") and offset >= self.data_offset:
                return np.zeros(int(count), dtype)
            return super()._get(offset, dtype, count, override_order)

    official = ZeroReader(str(cut), "c")
    assert official.tensors[0].data.tolist() == [[0, 0, 0], [0, 0, 0]]
    assert official.fields["llama.block_count"].contents() == 3


def test_a_program_may_choose_the_tensors(small):
    class OneReader(ours.GGUFReader):
        def _build_tensors(self, start_offs, fields):
            super()._build_tensors(
                start_offs, [field for field in fields if field.name != "weight"]
            )

    assert OneReader(small).tensors == []


def test_readers_and_fields_are_gguf_pys_too(small):
    reader = ours.GGUFReader(small)
    assert isinstance(reader, gguf.GGUFReader)
    assert type(reader.tensors[0]) is gguf.ReaderTensor
    assert isinstance(reader.fields["names"], gguf.ReaderField)
