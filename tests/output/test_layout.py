"""A plan has every offset and size before any data is read."""

from __future__ import annotations

import random
import struct
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ggufkit
from ggufkit.errors import GGUFError, ShapeError, TensorTypeError, ValueTypeError
from ggufkit.format.file_name import parse_shard_name, shard_name
from ggufkit.format.metadata import Metadata
from ggufkit.format.types import tensor_type
from ggufkit.models.model import Model, Tensor, Tensors
from ggufkit.models.rows import Span
from ggufkit.output.layout import file_nbytes, layout
from spelled import SPELLINGS, SpelledTensor, Spelling, spelling_id

F32 = tensor_type("F32")


class Nowhere:
    """A source of any size that must not be read."""

    byte_order = "little"
    span = None

    def read(self, start, stop):
        pytest.fail(f"rows {start} to {stop} were read")


def model_of(*sizes, metadata=(), names=None):
    """Return a model of tensors with these numbers of float32 elements."""
    names = names or [f"t{number}" for number in range(len(sizes))]
    tensors = (Tensor.over(n, F32, (s,), Nowhere()) for n, s in zip(names, sizes, strict=True))
    return Model(Metadata(metadata), Tensors(tensors))


def sizes_of(plan):
    """Return the bytes of the tensors in each file."""
    return [[extent.nbytes for extent in file.extents] for file in plan.files]


# One file.


@pytest.mark.parametrize("spelling", SPELLINGS[2:], ids=spelling_id)
@pytest.mark.parametrize("alignment", [8, 32, 64, 4096])
def test_header_and_places_match_the_format(spelling, alignment):
    infos = [SpelledTensor(f"t{n}", (n,), 0, bytes(4 * n)) for n in (1, 8, 0, 9, 100)]
    pairs = [("a", ("string", "text")), ("general.alignment", ("uint32", alignment))]
    content = spelling.file(pairs, infos, alignment)
    model = model_of(
        1,
        8,
        0,
        9,
        100,
        metadata={"a": "text", "general.alignment": alignment},
        names=[info.name for info in infos],
    )
    plan = layout(model, "x.gguf", version=spelling.version, byte_order=spelling.byte_order)
    (file,) = plan.files
    assert (plan.version, plan.byte_order, plan.alignment) == (
        spelling.version,
        spelling.byte_order,
        alignment,
    )
    assert plan.nbytes == file.nbytes == len(content)
    assert content.startswith(file.head)
    assert not any(content[len(file.head) : file.extents[0].offset])
    assert [extent.name for extent in file.extents] == [info.name for info in infos]
    assert all(extent.offset % alignment == 0 for extent in file.extents)
    assert [extent.nbytes for extent in file.extents] == [4, 32, 0, 36, 400]


def test_same_model_has_the_same_plan():
    model = model_of(1, 2, 3, metadata={"a": [1, 2]})
    for options in ({}, {"shard_tensors": 1}, {"alignment": 64, "byte_order": "big"}):
        assert layout(model, "x.gguf", **options) == layout(model, "x.gguf", **options)


def test_planning_reads_no_tensor_data(tmp_path):
    path = tmp_path / "in.gguf"
    path.write_bytes(Spelling().file([], [SpelledTensor("t", (4,), 0, bytes(16))]))
    model = ggufkit.open(path)
    before = layout(model, "x.gguf")
    model.close()
    assert layout(model, "x.gguf") == before


def test_plans_huge_models_at_once():
    tensors = [Tensor.over(f"t{n}", F32, (1 << 20, 1 << 20), Nowhere()) for n in range(100)]
    plan = layout(Model(Metadata(), Tensors(tensors)), "x.gguf", shard_size=1 << 45)
    assert plan.nbytes > 100 << 42
    assert len(plan.files) == 13


def test_accepts_the_largest_alignment():
    plan = layout(model_of(1, 1, metadata={"general.alignment": 2**31}), "x.gguf")
    assert [extent.offset for extent in plan.files[0].extents] == [2**31, 2**32]
    assert len(plan.files[0].head) < 200


@pytest.mark.parametrize(("version", "source"), [(1, 3), (2, 2), (3, 3)])
@pytest.mark.parametrize("order", ["little", "big"])
def test_plan_keeps_what_no_option_changes(tmp_path, version, source, order):
    path = tmp_path / "in.gguf"
    path.write_bytes(Spelling(version, order).file([("general.alignment", ("uint32", 64))]))
    with ggufkit.open(path) as model:
        plan = layout(model, "x.gguf")
        assert (plan.version, plan.byte_order, plan.alignment) == (source, order, 64)
        changed = layout(model, "x.gguf", version=5 - source, byte_order="big", alignment=8)
    assert (changed.version, changed.byte_order, changed.alignment) == (5 - source, "big", 8)
    mark = "<" if order == "little" else ">"
    assert struct.unpack_from(mark + "I", plan.files[0].head, 4) == (source,)


def test_writes_the_alignment_key_where_it_is_not_the_default():
    assert b"general.alignment" not in layout(model_of(1), "x", alignment=32).files[0].head
    assert b"general.alignment" in layout(model_of(1), "x", alignment=64).files[0].head
    aligned = model_of(1, metadata={"general.alignment": 64, "b": 1})
    plan = layout(aligned, "x", alignment=32)
    assert plan.alignment == 32
    key = plan.files[0].head.index(b"general.alignment")
    assert struct.unpack_from("<II", plan.files[0].head, key + 17) == (4, 32)


# Refusals.


@pytest.mark.parametrize(
    "options",
    [
        {"version": 1},
        {"version": 4},
        {"version": "3"},
        {"byte_order": "middle"},
        {"byte_order": "<"},
        {"alignment": 0},
        {"alignment": 1},
        {"alignment": 4},
        {"alignment": 48},
        {"alignment": -32},
        {"alignment": 2**32},
        {"alignment": 2**64},
        {"shard_size": 0},
        {"shard_size": -1},
        {"shard_tensors": 0},
    ],
    ids=str,
)
def test_refuses_impossible_options(options):
    with pytest.raises(GGUFError) as caught:
        layout(model_of(1), "x.gguf", **options)
    assert isinstance(caught.value, ValueError)
    assert caught.value.remedy


@pytest.mark.parametrize(
    "name", ["", "a\0b", "x" * 128, "ä" * 64, chr(0xD800), chr(0xDCFF), 5, None]
)
def test_refuses_impossible_tensor_names(name):
    with pytest.raises(ShapeError, match="not a valid tensor name"):
        layout(model_of(1, names=[name]), "x.gguf")


@pytest.mark.parametrize("name", ["x" * 127, "ä" * 63, "with space", "."])
def test_accepts_names_that_the_format_allows(name):
    assert name.encode() in layout(model_of(1, names=[name]), "x.gguf").files[0].head


@pytest.mark.parametrize(
    ("shape", "nbytes"), [((-1,), 4), ((0, 2**63), 0), ((1,), 2**63), ((2**40, 2**40), 2**82)]
)
def test_refuses_impossible_sizes(shape, nbytes):
    tensor = Tensor("t", F32, shape, nbytes, Nowhere())
    with pytest.raises(ShapeError):
        layout(Model(Metadata(), Tensors([tensor])), "x.gguf")


def test_opaque_tensor_keeps_its_byte_order(tmp_path):
    path = tmp_path / "in.gguf"
    path.write_bytes(Spelling().file([], [SpelledTensor("t", (4,), 77, bytes(32))]))
    with ggufkit.open(path) as model:
        assert sizes_of(layout(model, "x.gguf")) == [[32]]
        with pytest.raises(TensorTypeError, match="cannot change its byte order"):
            layout(model, "x.gguf", byte_order="big")


@pytest.mark.parametrize("order", ["little", "big"])
@pytest.mark.parametrize("is_padded", [True, False])
@pytest.mark.parametrize("sizes", [(), (1,), (3, 0, 100)])
def test_size_of_a_file_is_that_of_its_plan(sizes, is_padded, order, tmp_path):
    metadata = Metadata({"a": "text", "b": 7, "c": ["ä", "b"], "general.alignment": np.uint32(64)})
    base = model_of(*sizes, metadata=metadata)
    ggufkit.write(ggufkit.model({"t": np.ones(3, np.float32)}, metadata), tmp_path / "in.gguf")
    with ggufkit.open(tmp_path / "in.gguf") as opened:  # its values are not decoded
        for entries in (metadata, opened.metadata):
            model = Model(entries, base.tensors, byte_order=order, end_padded=is_padded)
            assert file_nbytes(model) == layout(model, "x.gguf").nbytes


@pytest.mark.parametrize("size_of", [file_nbytes, partial(layout, name="x.gguf")])
def test_impossible_file_is_refused(size_of, tmp_path):
    path = tmp_path / "in.gguf"
    path.write_bytes(Spelling().file([], [SpelledTensor("t", (4,), 77, bytes(32))]))
    with ggufkit.open(path) as model, pytest.raises(TensorTypeError, match="byte order"):
        size_of(Model(model.metadata, model.tensors, byte_order="big"))
    for tensor in (Tensor("", F32, (1,), 4, Nowhere()), Tensor("t", F32, (1,), 2**63, Nowhere())):
        with pytest.raises(ShapeError):
            size_of(Model(Metadata(), Tensors([tensor])))


def test_refuses_metadata_that_cannot_be_written():
    with pytest.raises(ValueTypeError):
        layout(model_of(1, metadata={"k": "\ud800"}), "x.gguf")


# Shards.


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("model-00001-of-00003.gguf", ("model", 0, 3)),
        ("a-b-00010-of-00010.gguf", ("a-b", 9, 10)),
        ("x-00001-of-00002-00001-of-00003.gguf", ("x-00001-of-00002", 0, 3)),
        ("-00001-of-00003.gguf", None),
        ("model-1-of-3.gguf", None),
        ("model-00001-of-00003.GGUF", None),
        ("model-00001-of-00003.gguf.part", None),
        ("model.gguf", None),
    ],
)
def test_shard_names_match_llama_cpp(name, parts):
    assert parse_shard_name(name) == parts
    if parts:
        assert shard_name(*parts) == name


def gguf_split(sizes, limit):
    """Group tensors as llama.cpp's gguf-split does by size: see `split_strategy` there."""
    groups, nbytes = [[]], 0
    for size in sizes:
        padded = size + -size % 32
        if nbytes + padded > limit:
            groups.append([])
            nbytes = 0
        groups[-1].append(size)
        nbytes += padded
    return groups


@given(
    st.lists(st.integers(1, 1000).map(lambda n: 4 * n), min_size=1, max_size=30),
    st.integers(4032, 20000),
)
def test_shards_by_size_match_gguf_split(sizes, limit):
    plan = layout(model_of(*(size // 4 for size in sizes)), "x.gguf", shard_size=limit)
    assert sizes_of(plan) == gguf_split(sizes, limit)


@given(st.integers(1, 30), st.integers(1, 40))
def test_shards_by_number_match_gguf_split(count, limit):
    plan = layout(model_of(*range(1, count + 1)), "x.gguf", shard_tensors=limit)
    sizes = [4 * n for n in range(1, count + 1)]
    assert sizes_of(plan) == [sizes[start : start + limit] for start in range(0, count, limit)]


def test_both_limits_apply_at_once():
    plan = layout(model_of(8, 8, 8, 100, 8), "x.gguf", shard_size=128, shard_tensors=2)
    assert sizes_of(plan) == [[32, 32], [32], [400], [32]]


def test_a_tensor_above_the_limit_gets_its_own_shard():
    plan = layout(model_of(100, 1, 100), "x.gguf", shard_size=64)
    assert sizes_of(plan) == [[400], [4], [400]]


def test_model_within_the_limits_is_not_split():
    plan = layout(model_of(8, 8), "x.gguf", shard_size=64, shard_tensors=2)
    assert [file.name for file in plan.files] == ["x.gguf"]
    assert b"split." not in plan.files[0].head


@pytest.mark.parametrize("name", ["m.gguf", "m", "m-00001-of-00009.gguf"])
def test_shards_are_named_after_the_output(name):
    plan = layout(model_of(1, 1), name, shard_tensors=1)
    assert [file.name for file in plan.files] == ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"]


@pytest.mark.parametrize("spelling", SPELLINGS[2:], ids=spelling_id)
@pytest.mark.parametrize("alignment", [None, 64])
def test_each_shard_is_a_complete_file_and_the_first_has_the_metadata(spelling, alignment):
    stray = {"split.count": 7, "a": 1, "split.no": "stray"}
    model = model_of(1, 2, 3, metadata=stray)
    form = {"version": spelling.version, "byte_order": spelling.byte_order}
    plan = layout(model, "x.gguf", shard_tensors=2, alignment=alignment, **form)
    pairs = [("a", ("uint32", 1))]
    bare = [("general.alignment", ("uint32", alignment))] if alignment else []
    for number, (file, sizes) in enumerate(zip(plan.files, [(1, 2), (3,)], strict=True)):
        split = [
            ("split.no", ("uint16", number)),
            ("split.tensors.count", ("int32", 3)),
            ("split.count", ("uint16", 2)),
        ]
        names = ["t0", "t1"] if number == 0 else ["t2"]
        infos = [SpelledTensor(n, (s,), 0, bytes(4 * s)) for n, s in zip(names, sizes, strict=True)]
        first = [*pairs, *bare] if number == 0 else bare
        expected = spelling.file([*first, *split], infos, alignment or 32)
        assert expected.startswith(file.head)
        assert len(expected) == file.nbytes


def test_refuses_more_shards_than_can_be_numbered():
    model = model_of(*[1] * 65536)
    with pytest.raises(ShapeError, match="at most 65535"):
        layout(model, "x.gguf", shard_tensors=1)


def test_unchanged_tensors_stay_ranges_of_their_file(tmp_path):
    path = tmp_path / "in.gguf"
    path.write_bytes(
        Spelling().file(
            [], [SpelledTensor("a", (9,), 0, bytes(36)), SpelledTensor("b", (9,), 24, bytes(9))]
        )
    )
    with ggufkit.open(path) as model:
        spans = [extent.source.span for extent in layout(model, "x").files[0].extents]
        assert spans == [
            Span(model.inputs[0], tensor.offset, tensor.nbytes) for tensor in model.tensors.values()
        ]
        swapped = layout(model, "x", byte_order="big").files[0].extents
        assert [extent.source.span for extent in swapped] == [None, spans[1]]


def test_keeps_the_order_of_tensors():
    names = [f"t{n}" for n in range(50)]
    random.Random(1).shuffle(names)
    plan = layout(model_of(*[2] * 50, names=names), "x", shard_tensors=7)
    assert [extent.name for file in plan.files for extent in file.extents] == names
    assert np.all(np.diff([extent.offset for extent in plan.files[0].extents]) == 32)
