"""The native scanner on its own: every rule, every truncation, every extreme count."""

from __future__ import annotations

import mmap
import struct
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import ggufkit._native as _native
from ggufkit.format.header import KEY_RECORD, TENSOR_RECORD

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
        """Every kind of field."""
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


def within_bounds(data: bytes) -> None:
    *_, end, keys, tensors, _ = _native.scan(data)
    assert end <= len(data)
    for key in np.frombuffer(keys, KEY_RECORD).tolist():
        assert key[0] + key[1] <= key[5] <= key[6] <= len(data)
    for info in np.frombuffer(tensors, TENSOR_RECORD).tolist():
        assert info[0] + info[1] <= info[2] <= len(data)


FORMS = [Writer(version, mark) for version, mark in product((1, 2, 3), "<>")]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"v{form.version}{form.mark}")
def test_every_version_and_byte_order_gives_the_same_records(form):
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
def test_a_file_cut_at_any_byte_is_reported_without_a_crash(form):
    data = form.rich()
    for size in range(len(data)):
        assert rules(data[:size]), size


def test_a_memory_map_is_read_like_bytes(tmp_path: Path):
    data = Writer().rich()
    path = tmp_path / "rich"
    path.write_bytes(data)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert _native.scan(mapped) == _native.scan(data)


@pytest.mark.parametrize("version", [0, 4, 65539, 2**32 - 1])
def test_refuses_an_unknown_version(version):
    assert only_problem(Writer(version).file([], [])) == ("version", 4, version, 0)


def one(kind: int, payload: bytes) -> bytes:
    return Writer().file([Writer().key(b"k", kind, payload)], [])


# The key's type is at byte 33 of these files, its value at 37, an array's elements at 49.
@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"GGU", ("header-truncated", 0, 4, 3)),
        (b"PK\3\4" + bytes(20), ("magic", 0, 0x04034B50, 0)),
        (b"GGUF\0\0\0\4" + bytes(16), ("version", 4, 0x04000000, 0)),
        (b"GGUF" + struct.pack("<IQQ", 3, 2, 0) + bytes(47), ("count", 8, 2, 47)),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + bytes(25), ("count", 16, 2, 25)),
        (one(4, b"abc"), ("header-truncated", 37, 4, 3)),
        (one(13, b"\0"), ("value-type", 33, 13, 0)),
        (one(8, struct.pack("<Q", 9) + b"short"), ("string-length", 37, 9, 5)),
        (one(9, struct.pack("<IQ", 13, 0)), ("element-type", 37, 13, 0)),
        (one(9, struct.pack("<IQ", 5, 3) + bytes(11)), ("array-count", 41, 3, 11)),
        (one(9, struct.pack("<IQQ", 8, 1, 2) + b"s"), ("string-length", 49, 2, 1)),
        (one(9, struct.pack("<IQIQ", 9, 1, 99, 0)), ("element-type", 49, 99, 0)),
        (one(7, b"\2"), ("bool-value", 37, 2, 0)),
        (one(9, struct.pack("<IQ", 7, 99) + bytes(97) + b"\7\2"), ("bool-value", 146, 7, 0)),
        (
            b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 6) + b"short",
            ("key-length", 24, 6, 5),
        ),
        (
            b"GGUF" + struct.pack("<IQQQ", 3, 1, 0, 17) + bytes(16),
            ("name-length", 24, 17, 16),
        ),
        (Writer().file([], [Writer().tensor(b"t", [1] * 33)]), ("dims-count", 33, 33, 32)),
        (
            Writer().file([], [Writer().tensor(b"t", [1] * 9)[:-25]]),
            ("header-truncated", 37, 72, 59),
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_problem_gives_its_field_the_value_and_what_was_expected(data, problem):
    assert only_problem(data) == problem


@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"v{form.version}{form.mark}")
def test_an_extreme_number_at_any_byte_stays_within_the_file(form):
    rich = form.rich()
    for offset, extreme in product(range(len(rich) - 8), (0, *EXTREMES)):
        number = form.pack("W", extreme & 0xFFFFFFFF if form.version == 1 else extreme)
        within_bounds(rich[:offset] + number + rich[offset + len(number) :])


def test_keeps_records_read_before_a_fatal_problem():
    form = Writer()
    keys = [form.key(b"good", 4, form.pack("I", 1)), form.key(b"bad", 77, b"")]
    data = form.file(keys, [form.tensor(b"t", [1])])
    _, _, kv_count, tensor_count, end, table, tensors, problems = _native.scan(data)
    assert (kv_count, tensor_count) == (2, 1)
    assert np.frombuffer(table, KEY_RECORD)["key_len"].tolist() == [4]
    assert tensors == b""
    assert [problem[:2] for problem in problems] == [("value-type", end)]


@pytest.mark.parametrize("extreme", EXTREMES)
@pytest.mark.parametrize("field", ["tensors", "keys", "key", "string", "array", "item", "name"])
def test_refuses_a_false_count_or_length_at_its_field(field, extreme):
    form = Writer()
    lie = form.pack("Q", extreme)
    head = b"GGUF" + form.pack("I", 3)
    one_key = form.pack("QQ", 0, 1)
    header = one_key + form.text(b"k")
    data = {
        "tensors": head + lie + form.pack("Q", 0),
        "keys": head + form.pack("Q", 0) + lie,
        "key": head + one_key + lie,
        "string": head + header + form.pack("I", 8) + lie,
        "array": head + header + form.pack("II", 9, 4) + lie,
        "item": head + header + form.pack("IIQ", 9, 8, 1) + lie,
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
def test_a_product_of_dims_never_overflows(dims):
    data = Writer().file([], [Writer().tensor(b"t", dims)])
    infos = np.frombuffer(_native.scan(data)[6], TENSOR_RECORD)
    assert infos["elements"].tolist() == [2**64 - 1]


@pytest.mark.parametrize("dims", [[2**63, 2**63, 0], [0, 2**63, 2**63], [2**63, 0, 2**63]])
def test_a_zero_dim_gives_zero_elements_for_any_other_dims(dims):
    data = Writer().file([], [Writer().tensor(b"t", dims)])
    assert np.frombuffer(_native.scan(data)[6], TENSOR_RECORD)["elements"].tolist() == [0]


def nested(depth: int) -> bytes:
    form = Writer()
    value = form.array(9, 1, b"") * (depth - 1) + form.array(4, 1, form.pack("I", 7))
    return form.file([form.key(b"k", 9, value)], [])


def test_arrays_nest_up_to_the_limit():
    assert rules(nested(_native.MAX_ARRAY_DEPTH)) == []
    assert rules(nested(_native.MAX_ARRAY_DEPTH + 1)) == ["array-depth"]
    assert rules(nested(100_000)) == ["array-depth"]


def test_number_of_problems_is_limited():
    form = Writer()
    keys = [form.key(b"%d" % i, 7, b"\2") for i in range(3 * _native.MAX_PROBLEMS)]
    assert len(rules(form.file(keys, []))) == _native.MAX_PROBLEMS - 1
    rules_broken = rules(form.file([*keys, form.key(b"k", 13, b"")], []))
    assert len(rules_broken) == _native.MAX_PROBLEMS
    assert rules_broken[-1] == "value-type"  # what ended the scan is never crowded out


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_scan_of_any_mutated_file_stays_within_its_bounds(data):
    form = data.draw(st.sampled_from(FORMS))
    raw = bytearray(form.rich())
    for _ in range(data.draw(st.integers(1, 8))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    within_bounds(bytes(raw))


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_scans_any_bytes_after_the_magic(tail):
    within_bounds(b"GGUF\3\0\0\0" + tail)


def packed(texts: list[bytes], form: Writer) -> bytes:
    return b"".join(form.text(text) for text in texts)


TEXTS = st.binary(max_size=12) | st.text(max_size=30).map(str.encode)


@example(["\u2581".encode() * 21 + b"a" * extra for extra in range(3)], Writer())
@example(["é\u07ff\u0800\uffff\U00010000\U0010ffff\0".encode()], Writer())
@given(st.lists(TEXTS, max_size=20), st.sampled_from(FORMS))
@settings(deadline=None)
def test_strings_decode_as_in_python_and_lose_nothing(texts, form):
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
    [
        *(b"\xc0\x80", b"\xed\xa0\x80", b"\xe0\x80\x80", b"a" * 9 + b"\xf0\x9f"),
        *(b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80"),  # beyond U+10FFFF
    ],
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
    with pytest.raises(ValueError, match=r"^moved$"):
        function(data, *place, True, False)


def test_indexes_inner_arrays():
    form = Writer(mark=">")
    data = form.array(4, 2, form.pack("II", 1, 2)) + form.array(8, 1, form.text(b"deep"))
    records = np.frombuffer(_native.array_index(data, 0, 2, True, True), "u4,u4,u8,u8,u8").tolist()
    assert [(kind, count) for kind, _, count, _, _ in records] == [(4, 2), (8, 1)]
    assert records[0][3:] == (12, 20)
    assert records[1][4] == len(data)


@pytest.mark.parametrize("offset", [0, 1, 63, 64, 65, 199])
def test_recognizes_runs_of_zeros(offset):
    data = bytearray(200)
    assert _native.all_zero(bytes(data), 0, 200)
    data[offset] = 1
    assert not _native.all_zero(bytes(data), 0, 200)
    assert _native.all_zero(bytes(data), offset + 1, 200)


@pytest.mark.parametrize("place", [(0, 201), (201, 201), (5, 4), (0, 2**64 - 1)])
def test_does_not_search_for_zeros_outside_the_data(place):
    with pytest.raises(ValueError, match=r"^moved$"):
        _native.all_zero(bytes(200), *place)


def test_scans_only_contiguous_bytes():
    data = Writer().rich()
    assert _native.scan(np.frombuffer(data, "u1")) == _native.scan(data)
    with pytest.raises(ValueError, match="contiguous"):
        _native.scan(np.frombuffer(data, "u1")[::2])
    with pytest.raises(TypeError, match="bytes-like"):
        _native.scan("GGUF")


@pytest.mark.parametrize("order", ["LITTLE", "BIG"])
def test_the_official_writer_and_reader_see_the_same_fields(tmp_path: Path, order):
    gguf = pytest.importorskip("gguf")
    path = tmp_path / "official.gguf"
    writer = gguf.GGUFWriter(path, "test", endianess=gguf.GGUFEndian[order])
    writer.add_uint32("test.count", 7)
    writer.add_array("test.tokens", ["one", "", "\u2581three"])
    writer.add_array("test.scores", [0.5, -1.0])
    writer.add_tensor("first", np.zeros((3, 64), np.float32))
    writer.add_tensor("second", np.zeros(32, np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    data, reader = path.read_bytes(), gguf.GGUFReader(path)
    _, big, _, _, end, keys, tensors, problems = _native.scan(data)
    assert (big, problems) == (order == "BIG", [])
    fields = [field for name, field in reader.fields.items() if not name.startswith("GGUF.")]
    starts = [(key["key_at"] - 8, key["end"]) for key in np.frombuffer(keys, KEY_RECORD)]
    assert starts == [(field.offset, field.offset + total(field)) for field in fields]
    infos = np.frombuffer(tensors, TENSOR_RECORD)
    theirs = reader.tensors
    assert infos["elements"].tolist() == [tensor.n_elements for tensor in theirs]
    assert infos["type"].tolist() == [tensor.tensor_type for tensor in theirs]
    offsets = [tensor.data_offset - reader.data_offset for tensor in theirs]
    assert infos["offset"].tolist() == offsets
    assert end == theirs[-1].field.offset + total(theirs[-1].field)


def total(field) -> int:
    return sum(int(part.nbytes) for part in field.parts)
