"""The native scanner on its own: every rule, every truncation, every extreme count."""

from __future__ import annotations

import mmap
import struct
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ggufkit import _native
from ggufkit.parse import KEY_RECORD, TENSOR_RECORD

NO_ELEMENT_TYPE = 0xFFFFFFFF
EXTREMES = (1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1)


class Writer:
    """Bytes of one form: a version, and a byte order."""

    def __init__(self, version: int = 3, mark: str = "<") -> None:
        self.version = version
        self.mark = mark
        self.word = "I" if version == 1 else "Q"

    def pack(self, codes: str, *values: float) -> bytes:
        return struct.pack(self.mark + codes.replace("W", self.word), *values)

    def text(self, text: bytes) -> bytes:
        return self.pack("W", len(text)) + text

    def key(self, name: bytes, kind: int, payload: bytes) -> bytes:
        return self.text(name) + self.pack("I", kind) + payload

    def array(self, kind: int, count: int, payload: bytes) -> bytes:
        return self.pack("IW", kind, count) + payload

    def tensor(self, name: bytes, dims: list[int], kind: int = 0, offset: int = 0) -> bytes:
        fields = self.pack(f"I{len(dims)}WIQ", len(dims), *dims, kind, offset)
        return self.text(name) + fields

    def file(self, keys: list[bytes], tensors: list[bytes]) -> bytes:
        head = b"GGUF" + self.pack("IWW", self.version, len(tensors), len(keys))
        return head + b"".join(keys) + b"".join(tensors)

    def rich(self) -> bytes:
        """Every kind of field there is."""
        strings = self.text(b"one") + self.text(b"") + self.text(b"\xff")
        inner = self.array(4, 2, self.pack("II", 1, 2)) + self.array(8, 1, self.text(b"deep"))
        keys = [
            self.key(b"a.u8", 0, b"\7"),
            self.key(b"a.f64", 12, self.pack("d", 0.5)),
            self.key(b"a.bool", 7, b"\1"),
            self.key(b"a.string", 8, self.text(b"text")),
            self.key(b"a.strings", 9, self.array(8, 3, strings)),
            self.key(b"a.bools", 9, self.array(7, 3, b"\0\1\0")),
            self.key(b"a.i16s", 9, self.array(3, 2, self.pack("hh", -1, 1))),
            self.key(b"a.arrays", 9, self.array(9, 2, inner)),
            self.key(b"a.empty", 9, self.array(10, 0, b"")),
        ]
        return self.file(keys, [self.tensor(b"t", [3, 4, 5], 8, 64), self.tensor(b"s", [])])


def rules(data: bytes) -> list[str]:
    return [problem[0] for problem in _native.scan(data)[7]]


def only_problem(data: bytes) -> tuple[str, int, int, int]:
    (problem,) = _native.scan(data)[7]
    return problem


FORMS = [Writer(version, mark) for version, mark in product((1, 2, 3), "<>")]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"v{form.version}{form.mark}")
def test_every_version_in_either_byte_order_gives_the_same_records(form):
    data = form.rich()
    version, big, kv_count, tensor_count, end, keys, tensors, problems = _native.scan(data)
    assert (version, big, kv_count, tensor_count) == (form.version, form.mark == ">", 9, 2)
    assert end == len(data)
    assert problems == []
    table = np.frombuffer(keys, KEY_RECORD)
    names = [data[k["key_at"] : k["key_at"] + k["key_len"]] for k in table]
    assert names[0] == b"a.u8"
    assert names[-1] == b"a.empty"
    assert table["value_type"].tolist() == [0, 12, 7, 8, 9, 9, 9, 9, 9]
    plain = [NO_ELEMENT_TYPE] * 4
    assert table["element_type"].tolist() == [*plain, 8, 7, 3, 9, 10]
    assert table["count"].tolist() == [1, 1, 1, 1, 3, 3, 2, 2, 0]
    assert data[table["value_at"][0]] == 7
    infos = np.frombuffer(tensors, TENSOR_RECORD)
    assert infos["n_dims"].tolist() == [3, 0]
    assert infos["width"].tolist() == [3, 1]
    assert infos["elements"].tolist() == [60, 1]
    assert infos["type"].tolist() == [8, 0]
    assert infos["offset"].tolist() == [64, 0]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"v{form.version}{form.mark}")
def test_a_file_cut_at_any_byte_is_told_and_never_crashes(form):
    data = form.rich()
    for size in range(len(data)):
        assert rules(data[:size]), size


def test_a_memory_map_is_read_as_bytes_are(tmp_path: Path):
    data = Writer().rich()
    path = tmp_path / "rich"
    path.write_bytes(data)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert _native.scan(mapped) == _native.scan(data)


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (b"GGML" + bytes(20), "magic"),
        (b"GGUF" + struct.pack("<IQQ", 4, 0, 0), "version"),
        (b"GGUF" + struct.pack("<IQQ", 65539, 0, 0), "version"),
        (b"GGUF" + struct.pack("<IQQ", 0, 0, 0), "version"),
        (b"GGUF" + struct.pack("<IQ", 3, 0), "header-truncated"),
        (Writer().file([Writer().key(b"k", 13, b"\0" * 8)], []), "value-type"),
        (Writer().file([Writer().key(b"k", 256, b"\0" * 8)], []), "value-type"),
        (Writer().file([Writer().key(b"k", 9, Writer().array(13, 0, b""))], []), "element-type"),
        (Writer().file([Writer().key(b"k", 7, b"\2")], []), "bool-value"),
        (
            Writer().file([Writer().key(b"k", 9, Writer().array(7, 3, b"\1\0\xff"))], []),
            "bool-value",
        ),
        (Writer().file([], [Writer().tensor(b"t", [1] * 33)]), "dims-count"),
    ],
)
def test_each_broken_field_has_its_rule(data, rule):
    assert rules(data) == [rule]


def test_places_and_numbers_of_a_problem_are_those_of_the_field():
    form = Writer()
    data = form.file([form.key(b"key", 9, form.array(8, 1, form.pack("Q", 99) + b"short"))], [])
    at = data.index(b"short") - 8
    assert only_problem(data) == ("string-length", at, 99, 5)


@pytest.mark.parametrize("extreme", EXTREMES)
@pytest.mark.parametrize("field", ["tensors", "keys", "key", "string", "array", "item", "name"])
def test_a_count_or_length_that_lies_is_refused_at_its_field(field, extreme):
    form = Writer()
    lie = form.pack("Q", extreme)
    head = b"GGUF" + form.pack("I", 3)
    one_key = form.pack("QQ", 0, 1)
    named = one_key + form.text(b"k")
    data = {
        "tensors": head + lie + form.pack("Q", 0),
        "keys": head + form.pack("Q", 0) + lie,
        "key": head + one_key + lie,
        "string": head + named + form.pack("I", 8) + lie,
        "array": head + named + form.pack("II", 9, 4) + lie,
        "item": head + named + form.pack("IIQ", 9, 8, 1) + lie,
        "name": head + form.pack("QQ", 1, 0) + lie,
    }[field]
    expected = {
        "tensors": {"count"},
        "keys": {"count"},
        "key": {"key-length", "count"},
        "string": {"string-length"},
        "array": {"array-count"},
        "item": {"string-length"},
        "name": {"name-length", "count"},
    }[field]
    assert expected.intersection(rules(data))


@pytest.mark.parametrize("dims", [[2**32, 2**32], [2**63, 2], [2**64 - 1, 2**64 - 1, 3]])
def test_a_product_of_dims_never_wraps(dims):
    data = Writer().file([], [Writer().tensor(b"t", dims)])
    infos = np.frombuffer(_native.scan(data)[6], TENSOR_RECORD)
    assert infos["elements"].tolist() == [2**64 - 1]


def test_a_zero_dim_makes_no_elements_whatever_the_others_are():
    data = Writer().file([], [Writer().tensor(b"t", [2**63, 2**63, 0])])
    assert np.frombuffer(_native.scan(data)[6], TENSOR_RECORD)["elements"].tolist() == [0]


def nested(depth: int) -> bytes:
    form = Writer()
    value = form.array(9, 1, b"") * (depth - 1) + form.array(4, 1, form.pack("I", 7))
    return form.file([form.key(b"k", 9, value)], [])


def test_arrays_nest_to_the_limit_and_no_deeper():
    assert rules(nested(_native.MAX_ARRAY_DEPTH)) == []
    assert rules(nested(_native.MAX_ARRAY_DEPTH + 1)) == ["array-depth"]
    assert rules(nested(100_000)) == ["array-depth"]


def test_problems_do_not_grow_without_bound():
    form = Writer()
    keys = [form.key(b"%d" % i, 7, b"\2") for i in range(3 * _native.MAX_PROBLEMS)]
    assert len(rules(form.file(keys, []))) <= _native.MAX_PROBLEMS


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_any_mutation_of_a_file_is_scanned_within_its_bounds(data):
    form = data.draw(st.sampled_from(FORMS))
    raw = bytearray(form.rich())
    for _ in range(data.draw(st.integers(1, 8))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    *_, end, keys, tensors, _ = _native.scan(bytes(raw))
    assert end <= len(raw)
    for key in np.frombuffer(keys, KEY_RECORD).tolist():
        assert key[0] + key[1] <= key[5] <= key[6] <= len(raw)
    for info in np.frombuffer(tensors, TENSOR_RECORD).tolist():
        assert info[0] + info[1] <= info[2] <= len(raw)


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_bytes_after_the_magic_are_scanned(tail):
    _native.scan(b"GGUF\3\0\0\0" + tail)


def packed(texts: list[bytes], form: Writer) -> bytes:
    return b"".join(form.text(text) for text in texts)


@given(st.lists(st.binary(max_size=12), max_size=20), st.sampled_from(FORMS))
@settings(deadline=None)
def test_strings_decode_as_python_does_and_lose_nothing(texts, form):
    data = b"??" + packed(texts, form)
    place = (2, len(texts), form.version != 1, form.mark == ">")
    assert _native.strings(data, *place) == [t.decode("utf-8", "surrogateescape") for t in texts]
    index = np.frombuffer(_native.string_index(data, *place), "u8").tolist()
    assert index[-1] == len(data)
    width = 4 if form.version == 1 else 8
    assert [data[a + width : b] for a, b in pairwise(index)] == texts
    assert _native.utf8_problem(data, *place) == first_invalid(texts)


def first_invalid(texts: list[bytes]) -> int:
    for position, text in enumerate(texts):
        try:
            text.decode()
        except UnicodeDecodeError:
            return position
    return -1


@pytest.mark.parametrize(
    "text",
    [b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe0\x80\x80", b"a" * 9 + b"\xf0\x9f"],
)
def test_overlong_forms_and_surrogates_are_not_utf8(text):
    data = packed([b"fine", text], Writer())
    assert _native.utf8_problem(data, 0, 2, True, False) == 1


@pytest.mark.parametrize(
    "function", [_native.strings, _native.string_index, _native.utf8_problem, _native.array_index]
)
@pytest.mark.parametrize("place", [(0, 3), (100, 1), (2**63, 1), (0, 2**64 - 1), (3, 1)])
def test_decoding_outside_the_data_is_an_error(function, place):
    data = packed([b"one", b"two"], Writer())
    with pytest.raises(ValueError, match=r"."):
        function(data, *place, True, False)


def test_inner_arrays_are_indexed():
    form = Writer(mark=">")
    data = form.array(4, 2, form.pack("II", 1, 2)) + form.array(8, 1, form.text(b"deep"))
    records = np.frombuffer(_native.array_index(data, 0, 2, True, True), "u4,u4,u8,u8,u8").tolist()
    assert [(kind, count) for kind, _, count, _, _ in records] == [(4, 2), (8, 1)]
    assert records[0][3:] == (12, 20)
    assert records[1][4] == len(data)


@pytest.mark.parametrize("at", [0, 1, 63, 64, 65, 199])
def test_zeros_are_told_from_anything_else(at):
    data = bytearray(200)
    assert _native.all_zero(bytes(data), 0, 200)
    data[at] = 1
    assert not _native.all_zero(bytes(data), 0, 200)
    assert _native.all_zero(bytes(data), at + 1, 200)
