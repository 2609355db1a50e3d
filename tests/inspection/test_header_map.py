from __future__ import annotations

import itertools
import struct

import numpy as np
import pytest

import ggufkit
from ggufkit.inspection.header_map import SHOWN_BYTES, dissect

ITEMS = {
    "general.architecture": "llama",
    "a.empty": "",
    "a.byte": np.uint8(7),
    "a.long": np.int64(-1),
    "a.half": 0.5,
    "a.yes": True,
    "a.numbers": np.arange(100, dtype=np.uint16),
    "a.words": ["one", "two", "three", "four", "five"],
    "a.nested": [[1], ["x"]],
    "a.nothing": np.empty(0, np.float32),
    "a.template": "x" * 1000,
}


def map_file(path, **options):
    tensors = {
        "first.weight": np.ones((3, 64), np.float32),
        "a" * 63: (np.ones((2, 2, 32), np.float32), "Q8_0"),
        "last": np.ones(5, np.int8),
    }
    ggufkit.save(path, tensors, ITEMS, **options)
    return path


def small(path):
    """A file of a short header with all that a header can hold."""
    items = {"a": "b", "c": ["d", "e"], "f": [[1]], "g": [True, False], "h": 0.5}
    ggufkit.save(path, {"t": np.ones((2, 32), np.int8), "u": np.ones(4, np.float32)}, items)
    return path


@pytest.fixture(params=[("little", 3), ("big", 3), ("little", 2)], ids=lambda p: f"{p[0]}-{p[1]}")
def path(request, tmp_path):
    order, version = request.param
    return map_file(tmp_path / "m.gguf", byte_order=order, version=version)


def version_1(path):
    """The same file in the layout of version 1, made by hand."""
    text = lambda s: struct.pack("<I", len(s)) + s  # noqa: E731
    head = b"GGUF" + struct.pack("<III", 1, 1, 1) + text(b"k") + struct.pack("<I", 8) + text(b"v")
    head += text(b"t") + struct.pack("<IIIQ", 1, 8, 24, 0)
    path.write_bytes(head.ljust(64, b"\0") + bytes(32))
    return path


def is_whole(path, fields):
    """Return whether the fields follow each other without a gap and hold the bytes of the file."""
    content = path.read_bytes()
    ends = itertools.accumulate((field.nbytes for field in fields), initial=0)
    return [field.offset for field in fields] == list(ends)[:-1] and all(
        field.data == content[field.offset : field.offset + min(field.nbytes, SHOWN_BYTES)]
        for field in fields
    )


def test_every_byte_up_to_the_end_has_its_field(path):
    fields, findings = dissect(path)
    assert not [finding for finding in findings if finding.severity == "error"]
    assert is_whole(path, fields)
    assert fields[-1].meaning == "tensor data"
    assert fields[-1].offset + fields[-1].nbytes == path.stat().st_size
    assert fields[-1].offset == ggufkit.open(path).data_offset


def test_every_kind_of_field_has_an_explanation(path):
    meanings = [field.meaning for field in dissect(path)[0]]
    with ggufkit.open(path) as model:
        start = model.tensors["last"].offset - model.data_offset
        version = f"version {model.version}, {model.byte_order} endian"
    for meaning in (
        "magic",
        version,
        "tensor count 3",
        f"key-value count {len(ITEMS) + 1}",  # and general.quantization_version
        "key length 20",
        "key general.architecture",
        "value type 8: string",
        "string length 5",
        "'llama'",
        "string length 0",
        "value type 0: uint8",
        "value 7",
        "value -1",
        "value 0.5",
        "value True",
        "element type 2: uint16",
        "element count 100",
        "0, 1, 2, 3, ...",
        "'one', 'two', 'three', 'four', ...",
        "element type 9: array",
        "arrays",
        "element count 0",
        "string length 1000",
        "name length 12",
        "tensor first.weight",
        f"tensor {'a' * 63}",
        "dimension count 3",
        "dimensions 32 x 2 x 2, fastest-varying first",
        "tensor type 24: I8",
        "tensor type 8: Q8_0",
        f"offset {start}, from the beginning of the data",
    ):
        assert meaning in meanings


def test_version_1_has_narrow_lengths(tmp_path):
    path = version_1(tmp_path / "one.gguf")
    fields, _ = dissect(path)
    assert is_whole(path, fields)
    assert [f.nbytes for f in fields[:6]] == [4, 4, 4, 4, 4, 1]


def test_maps_a_truncated_file_up_to_its_end(tmp_path):
    content = small(tmp_path / "m.gguf").read_bytes()
    whole = dissect(tmp_path / "m.gguf")[0]
    padding = next(field for field in whole if "padding" in field.meaning)
    cut = tmp_path / "cut.gguf"
    for size in range(1, padding.offset):
        cut.write_bytes(content[:size])
        fields, findings = dissect(cut)
        assert fields[-1].meaning.startswith("ERROR: ")
        assert fields[-1].meaning.removeprefix("ERROR: ") in {f.message for f in findings}
        assert is_whole(cut, fields[:-1])
        assert fields[-1].offset <= size
        known = [f for f in fields[:-1] if "cannot be read" not in f.meaning]
        assert known == whole[: len(known)]


def test_any_changed_byte_still_gives_a_map(tmp_path):
    content = small(tmp_path / "m.gguf").read_bytes()
    broken = tmp_path / "broken.gguf"
    for offset in range(ggufkit.open(tmp_path / "m.gguf").data_offset):
        for value in (0, 0xFF, content[offset] ^ 0x80):
            broken.write_bytes(content[:offset] + bytes([value]) + content[offset + 1 :])
            fields, _ = dissect(broken)
            assert fields
            assert all(f.offset + len(f.data) <= len(content) for f in fields)


@pytest.mark.parametrize("content", [b"", b"GG", b"<html>", b"GGUF", b"GGUF\x09\0\0\0" + bytes(99)])
def test_map_of_a_file_that_is_not_gguf_shows_the_error_in_its_place(tmp_path, content):
    path = tmp_path / "strange.gguf"
    path.write_bytes(content)
    fields, findings = dissect(path)
    assert findings[0].severity == "error"
    if content:
        assert fields[-1].meaning == f"ERROR: {findings[0].message}"


def test_maps_a_real_model_to_its_last_byte(gemma3):
    fields, _ = dissect(gemma3)
    assert is_whole(gemma3, fields)
    assert "element count 262144" in {field.meaning for field in fields}
