"""Bytes become a header; every finding points at the field that is wrong."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from forging import unusual
from forging.builder import (
    ARCHITECTURE,
    ARRAY,
    BOOL,
    STRING,
    U8,
    U16,
    U32,
    Array,
    Forge,
    Number,
    Pair,
    Text,
    array,
    number,
    tensor,
    text,
)
from ggufkit.format.header import GGML_MAX_COUNT, parse
from ggufkit.format.types import ValueType
from ggufkit.rules.findings import MAX_FINDINGS
from ggufkit.system.mapped_file import MappedFile

TWINS = [(version, mark) for version in (1, 2, 3) for mark in "<>"]
INFOS = (tensor("first", 8, 2), tensor("second", 3, type=24))


def parsed(forge: Forge):
    data = forge.build()
    return parse(data, len(data))


def errors(header):
    return [finding.rule for finding in header.findings if finding.severity == "error"]


def values(header):
    """Return keys, types and plain values, in order."""
    return [
        (key, header.metadata.type_name(key), getattr(value, "tolist", lambda v=value: v)())
        for key, value in header.metadata.items()
    ]


# What a header tells.


def rows(header):
    return [header.places.tensor(index) for index in range(len(header.places.starts))]


@pytest.mark.parametrize(("version", "mark"), TWINS)
def test_every_version_and_byte_order_holds_the_same(version, mark):
    pairs = (*unusual.every_type(), unusual.nested_text())
    twin = parsed(Forge(version=version, mark=mark, pairs=pairs, infos=INFOS))
    plain = parsed(Forge(pairs=pairs, infos=INFOS))
    assert not errors(twin)
    assert (twin.version, twin.byte_order) == (version, {"<": "little", ">": "big"}[mark])
    assert values(twin) == values(plain)
    assert rows(twin) == rows(plain)


def test_distinguishes_all_13_value_types():
    header = parsed(Forge(pairs=unusual.every_type()))
    names = {header.metadata.type_name(key) for key in header.metadata}
    scalars = {kind.name.lower() for kind in ValueType} - {"array"}
    assert names == scalars | {f"array[{name}]" for name in scalars}


def test_computes_places_from_shapes_types_and_offsets():
    header = parsed(Forge(infos=(*INFOS, tensor("third", 32, 2, type=8))))
    places = [(name, str(kind), *row) for name, kind, *row in rows(header)]
    assert places == [
        ("first", "F32", (2, 8), 0, 64, 32),
        ("second", "I8", (3,), 64, 3, 3),
        ("third", "Q8_0", (2, 32), 96, 68, 34),
    ]


@pytest.mark.parametrize("alignment", [8, 32, 256])
def test_data_begins_at_the_alignment(alignment):
    pairs = (number("general.alignment", U32, alignment),)
    forge = Forge(pairs=pairs, alignment=alignment)
    header = parsed(forge)
    assert header.end == len(forge.header())
    assert header.data_offset == -(-header.end // alignment) * alignment
    assert header.data_end == header.data_offset + alignment * -(-64 // alignment) + 16
    assert header.data_nbytes == header.nbytes - header.data_offset


def test_reports_end_padding():
    assert parsed(Forge()).end_padded
    assert not parsed(Forge(pad_end=False)).end_padded


def test_opaque_tensor_extends_to_its_neighbour_or_to_the_end():
    infos = [tensor("a", 9, type=77, size=40), tensor("b", 9, type=77, size=8)]
    first = parsed(Forge(infos=infos))
    assert first.places.sizes == [64, 32]
    unpadded = parsed(Forge(infos=infos, pad_end=False))
    assert unpadded.places.sizes == [64, 8]


def test_header_of_a_broken_file_holds_what_could_be_read():
    header = parsed(Forge(pairs=(ARCHITECTURE, Pair(text("a.b"), 13, Number(U8, 1)))))
    assert list(header.metadata) == ["general.architecture"]
    assert not header.places.starts


# Where findings point.


@pytest.mark.parametrize(
    ("rule", "needle", "forge"),
    [
        ("key-duplicate", text("x.y"), Forge((ARCHITECTURE, *[number("x.y", U8, 7)] * 2))),
        ("key-utf8", text(b"\xff.k"), Forge((number(b"\xff.k", U8, 7),))),
        ("bool-value", Number(U8, 9), Forge((Pair(text("x.y"), BOOL, Number(U8, 9)),), ())),
        ("value-type", Number(U32, 77), Forge((Pair(text("x.y"), 77, Number(U8, 1)),))),
        ("element-type", Number(U32, 77), Forge((array("x.y", 77, []),))),
        ("string-length", Number(U16, 54321), Forge((array("x.y", STRING, [b"a"], 54321),))),
        ("alignment-value", Number(U32, 54321), Forge((number("general.alignment", U32, 54321),))),
        ("name-duplicate", text("twin"), Forge(infos=[tensor("twin", 4)] * 2)),
        ("row-width", Number(U32, 2), Forge(infos=(tensor("a", 33, 5, type=8, size=0),))),
        ("type-unknown", Number(U32, 54321), Forge(infos=(tensor("a", 4, type=54321, size=4),))),
        ("offset-alignment", Number(U16, 54321), Forge(infos=(tensor("a", 4, offset=54321),))),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_finding_points_at_the_field(rule, needle, forge):
    data = forge.build()
    finding = next(f for f in parse(data, len(data)).findings if f.rule in {rule, "array-count"})
    assert finding.offset == data.rfind(needle.encode(forge.form))


# Limits.


def test_findings_of_a_rule_are_limited_and_the_rest_are_counted():
    names = (tensor("same", 0) for _ in range(MAX_FINDINGS + 500))
    header = parsed(Forge(infos=tuple(names)))
    listed = [finding.rule for finding in header.findings]
    assert listed.count("name-duplicate") == MAX_FINDINGS
    assert listed.count("tensor-empty") == MAX_FINDINGS
    notes = [f.message for f in header.findings if f.rule == "omitted"]
    assert notes == [
        "499 more findings of the rule name-duplicate are not listed",
        "500 more findings of the rule tensor-empty are not listed",
    ]


def test_messages_stay_short_for_any_names_in_a_file():
    long = "n" * 60_000
    header = parsed(Forge((number(long + "\0", U8, 1),), (tensor(long, 4),)))
    assert {"key-nul", "name-size"} <= set(errors(header))
    assert all(len(finding.message) < 400 for finding in header.findings)


@pytest.mark.parametrize(
    ("value", "is_long"),
    [
        (array("a.b", U8, [], GGML_MAX_COUNT), False),
        (array("a.b", U8, [], GGML_MAX_COUNT + 1), True),
    ],
)
def test_reports_an_array_beyond_the_limit_of_ggml(tmp_path, value, is_long):
    assert ("value-long" in rules_of_sparse(tmp_path, value, GGML_MAX_COUNT + 1)) == is_long


@pytest.mark.parametrize("is_item", [False, True], ids=["scalar", "item"])
@pytest.mark.parametrize("extra", [0, 1])
def test_reports_a_string_beyond_the_limit_of_ggml(tmp_path, is_item, extra):
    lie = Text(b"", GGML_MAX_COUNT + extra)
    value = Array(STRING, [text("short"), lie]) if is_item else lie
    pair = Pair(text("a.b"), ARRAY if is_item else STRING, value)
    rules = rules_of_sparse(tmp_path, pair, GGML_MAX_COUNT + extra)
    assert ("value-long" in rules) == bool(extra)


def rules_of_sparse(folder, pair, nbytes):
    """Return the rules broken by a file whose last value is a hole of `nbytes`."""
    head = Forge(pairs=(pair,), infos=()).build()
    path = folder / "sparse.gguf"
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + nbytes)
    mapped = MappedFile(path)
    try:
        return {finding.rule for finding in parse(mapped.data, mapped.nbytes).findings}
    finally:
        mapped.close()


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"offset": 0},
        {"offset": 2**63},
        {"type": 77},
        {"dims": (2**61,)},
        {"name": text("")},
    ],
    ids=["sound", "overlapping", "beyond", "unknown", "overflowing", "nameless"],
)
def test_many_broken_tensors_take_no_longer_than_sound_ones(odd):
    count = 30_000
    infos = [
        replace(tensor(f"t{i}", 4, offset=32 * i, size=0), **odd).encode(Forge().form)
        for i in range(count)
    ]
    head = Forge(infos=(), tensor_count=count).header() + b"".join(infos)
    data = head + bytes(32 * count + 32)
    begin = time.process_time()
    header = parse(data, len(data))
    assert time.process_time() - begin < 5
    assert bool(errors(header)) == (odd not in ({}, {"type": 77}))
