"""Importance matrices: files read and written as llama.cpp does, weights as it uses them."""

from __future__ import annotations

import contextlib
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import ggufkit
from ggufkit.errors import FormatError, ShapeError, TruncatedError, ValueTypeError
from ggufkit.imatrix.matrix import Entry, Imatrix, merge

RNG = np.random.default_rng(4)
DENSE = "blk.0.ffn_up.weight"
EXPERTS = "blk.0.ffn_up_exps.weight"


def entry(counts, width=6):
    sums = RNG.random((len(counts), width), np.float32) * 100
    return Entry(sums, np.array(counts, np.int64))


def legacy(entries, tail=b""):
    parts = [struct.pack("<i", len(entries))]
    for name, calls, values in entries:
        parts.append(struct.pack("<i", len(name)) + name)
        parts.append(struct.pack("<ii", calls, len(values)) + np.array(values, "<f4").tobytes())
    return b"".join(parts) + tail


def written(path, data):
    path.write_bytes(data)
    return path


@pytest.fixture
def matrix():
    return Imatrix(
        {DENSE: entry([1024]), EXPERTS: entry([700, 0, 324])}, ("a.txt", "b.txt"), 2, 512
    )


def same(one, other):
    assert list(one.entries) == list(other.entries)
    for name, mine in one.entries.items():
        assert np.array_equal(mine.sums, other.entries[name].sums)
        assert np.array_equal(mine.counts, other.entries[name].counts)
    assert (one.datasets, one.chunk_count) == (other.datasets, other.chunk_count)
    return True


# What quantizing takes.


def test_weights_are_means_and_an_unused_expert_has_equal_weights(matrix):
    assert np.array_equal(matrix.weights(DENSE), matrix.entries[DENSE].sums[0] / np.float32(1024))
    experts = matrix.weights(EXPERTS)
    assert experts.shape == (3, 6)
    assert np.array_equal(experts[1], np.ones(6))
    assert np.array_equal(experts[2], matrix.entries[EXPERTS].sums[2] / np.float32(324))
    assert matrix.weights("other.weight") is None


def test_weights_take_the_shape_of_a_tensor(matrix):
    assert matrix.weights(DENSE, (9, 6)).shape == (6,)
    assert matrix.weights(EXPERTS, (3, 4, 6)).shape == (3, 6)
    assert matrix.weights(DENSE, (3, 4, 2)).shape == (3, 2)
    with pytest.raises(ShapeError, match=r"'blk\.0\.ffn_up\.weight' holds 6 values.* needs 8"):
        matrix.weights(DENSE, (9, 8))


def test_leaves_out_token_embeddings_that_do_not_fit():
    matrix = Imatrix({"token_embd.weight": entry([4])})
    assert matrix.weights("token_embd.weight", (9, 8)) is None


def test_legacy_values_are_divided_by_their_nonzero_calls(tmp_path):
    data = legacy([(b"a", 4, [1, 2]), (b"b", 0, [1, 2])])
    matrix = Imatrix.open(written(tmp_path / "x.dat", data))
    assert matrix.weights("a").tolist() == [0.25, 0.5]
    assert matrix.weights("b").tolist() == [1, 2]


def test_selection_matches_parts_of_names(matrix):
    assert list(matrix.selected(include=["exps"]).entries) == [EXPERTS]
    assert list(matrix.selected(exclude=["exps"]).entries) == [DENSE]
    assert list(matrix.selected(["ffn"], ["up."]).entries) == [EXPERTS]


# Files.


def test_gguf_file_is_read_back_as_saved(matrix, tmp_path):
    path = matrix.save(tmp_path / "x.gguf")
    again = Imatrix.open(path)
    assert same(again, matrix)
    assert (again.chunk_size, again.is_legacy, again.path) == (512, False, path)
    assert again.save(tmp_path / "y.gguf").read_bytes() == path.read_bytes()


def test_gguf_file_has_the_keys_and_shapes_of_llama_imatrix(matrix, tmp_path):
    with ggufkit.open(matrix.save(tmp_path / "x.gguf")) as model:
        assert {key: model.metadata.type_name(key) for key in model.metadata} == {
            "general.type": "string",
            "imatrix.datasets": "array[string]",
            "imatrix.chunk_count": "uint32",
            "imatrix.chunk_size": "uint32",
        }
        assert {tensor.name: tensor.shape for tensor in model.tensors.values()} == {
            f"{DENSE}.in_sum2": (6,),
            f"{DENSE}.counts": (1,),
            f"{EXPERTS}.in_sum2": (3, 6),
            f"{EXPERTS}.counts": (3, 1),
        }


def test_legacy_file_holds_means_times_chunks(matrix, tmp_path):
    again = Imatrix.open(matrix.save(tmp_path / "x.dat"))
    assert (again.is_legacy, again.chunk_count, again.datasets) == (True, 2, ("b.txt",))
    sums = again.entries[DENSE].sums
    assert np.array_equal(sums[0], matrix.weights(DENSE) * np.float32(2))
    assert np.array_equal(
        again.weights(EXPERTS, (3, 4, 6)),
        matrix.weights(EXPERTS) * np.float32(2) / np.float32(2),
    )


def test_legacy_bytes_match_llama_imatrix(matrix, tmp_path):
    chunks, seen = np.float32(2), matrix.entries[EXPERTS].counts[:, np.newaxis].astype(np.float32)
    experts = matrix.entries[EXPERTS].sums / np.where(seen > 0, seen, 1)
    experts[1] = 1
    expected = legacy(
        [
            (DENSE.encode(), 2, matrix.entries[DENSE].sums[0] / np.float32(1024) * chunks),
            (EXPERTS.encode(), 2, (experts * chunks).reshape(-1)),
        ],
        struct.pack("<ii", 2, 5) + b"b.txt",
    )
    assert matrix.save(tmp_path / "x.dat").read_bytes() == expected


def test_legacy_file_leaves_out_what_no_token_reached(tmp_path):
    matrix = Imatrix({"a": entry([0, 0]), "b": entry([3])}, (), 1)
    assert list(Imatrix.open(matrix.save(tmp_path / "x.dat")).entries) == ["b"]


def test_legacy_tail_is_optional(tmp_path):
    data = legacy([(b"a", 4, [1, 2])])
    for tail, count, datasets in (
        (b"", 0, ()),
        (struct.pack("<i", 7), 7, ()),
        (struct.pack("<ii", 7, 0), 7, ()),
        (struct.pack("<ii", 7, 3) + b"txt", 7, ("txt",)),
    ):
        matrix = Imatrix.open(written(tmp_path / "x.dat", data + tail))
        assert (matrix.chunk_count, matrix.datasets) == (count, datasets)


def test_refuses_an_unknown_format(matrix, tmp_path):
    with pytest.raises(ValueTypeError, match="unknown format 'csv'"):
        matrix.save(tmp_path / "x", "csv")
    assert not (tmp_path / "x").exists()


def test_converting_between_formats_keeps_the_weights(matrix, tmp_path):
    old = Imatrix.open(matrix.save(tmp_path / "x.dat"))
    new = Imatrix.open(old.save(tmp_path / "x.gguf"))
    assert np.allclose(new.weights(DENSE), matrix.weights(DENSE), rtol=1e-6)
    assert new.entries[DENSE].counts.tolist() == [1024]


# Merging.


def test_merging_adds_sums_and_counts(matrix):
    twice = merge([matrix, matrix])
    assert np.array_equal(twice.entries[DENSE].sums, matrix.entries[DENSE].sums * 2)
    assert twice.entries[EXPERTS].counts.tolist() == [1400, 0, 648]
    assert twice.datasets == ("a.txt", "b.txt", "a.txt", "b.txt")
    assert twice.chunk_count == 4


def test_merging_keeps_tensors_of_only_one_file():
    assert list(merge([Imatrix({"b": entry([1])}), Imatrix({"a": entry([1])})]).entries) == [
        "a",
        "b",
    ]


def test_a_single_count_applies_to_all_later_experts(matrix):
    flat = Entry(matrix.entries[EXPERTS].sums.reshape(1, -1), np.array([512]))
    merged = merge([Imatrix({EXPERTS: flat}), matrix])
    assert merged.entries[EXPERTS].counts.tolist() == [1212, 512, 836]
    with pytest.raises(ShapeError, match="separate data"):
        merge([matrix, Imatrix({EXPERTS: flat})])


def test_refuses_to_merge_matrices_of_different_models(matrix):
    with pytest.raises(ShapeError, match="one model"):
        merge([matrix, Imatrix({DENSE: entry([1], width=8)})])


def test_merging_keeps_a_chunk_size_that_all_files_share():
    assert merge([Imatrix({"a": entry([256])}, chunk_size=128)]).chunk_count == 2
    mixed = [Imatrix({"a": entry([1024])}, chunk_size=size) for size in (128, 256)]
    assert (merge(mixed).chunk_size, merge(mixed).chunk_count) == (512, 4)
    assert merge(mixed, chunk_size=64).chunk_count == 32


# Hostile files.

WHOLE = legacy([(b"a", 4, [1, 2]), (b"b", 2, [3])], struct.pack("<ii", 7, 3) + b"txt")
OPTIONAL = {len(WHOLE) - 11, len(WHOLE) - 7}  # where a file may end


@pytest.mark.parametrize("size", sorted(set(range(len(WHOLE))) - OPTIONAL))
def test_refuses_a_truncated_legacy_file(tmp_path, size):
    with pytest.raises(TruncatedError, match="the file ends within"):
        Imatrix.open(written(tmp_path / "x.dat", WHOLE[:size]))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (struct.pack("<i", 0), "cannot be 0 entries"),
        (struct.pack("<i", -1), "cannot be -1 entries"),
        (struct.pack("<i", 2**31 - 1), "ends within"),
        (struct.pack("<ii", 1, -5), "name of -5 bytes"),
        (struct.pack("<ii", 1, 2**31 - 1), "name of 2147483647 bytes"),
        (legacy([(b"\xff", 1, [1])]), "not UTF-8"),
        (legacy([(b"a", -1, [1])]), "cannot have 1 values of -1 chunks"),
        (legacy([(b"a", 1, [])]), "cannot have 0 values"),
        (legacy([(b"a", 1, [np.nan])]), "infinite or not a number"),
        (struct.pack("<ii", 1, 1) + b"a" + struct.pack("<ii", 1, 2**31 - 1), "values of 'a'"),
        (b"<html>", "."),
    ],
)
def test_refuses_false_fields_in_a_legacy_file(tmp_path, data, message):
    with pytest.raises(FormatError, match=message) as caught:
        Imatrix.open(written(tmp_path / "x.dat", data))
    assert str(tmp_path) in str(caught.value)


@given(st.binary(max_size=64))
def test_any_bytes_are_read_or_refused(tmp_path_factory, data):
    path = written(tmp_path_factory.mktemp("any") / "x.dat", data)
    with contextlib.suppress(FormatError):
        assert Imatrix.open(path).entries


METADATA = {
    "general.type": "imatrix",
    "imatrix.datasets": ["x"],
    "imatrix.chunk_count": 1,
    "imatrix.chunk_size": 512,
}
ONES = np.ones(4, np.float32)


@pytest.mark.parametrize("key", ["datasets", "chunk_count", "chunk_size"])
def test_refuses_a_gguf_file_without_a_key_of_a_matrix(tmp_path, key):
    metadata = {k: v for k, v in METADATA.items() if not k.endswith(key)}
    ggufkit.save(tmp_path / "x.gguf", {"a.in_sum2": ONES, "a.counts": ONES[:1]}, metadata)
    with pytest.raises(FormatError, match=f"no imatrix.{key}"):
        Imatrix.open(tmp_path / "x.gguf")


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({}, "no data"),
        ({"a.weight": ONES}, "no data"),
        ({"a.in_sum2": ONES}, r"no tensor 'a\.counts'"),
        ({"a.counts": ONES}, r"no tensor 'a\.in_sum2'"),
        ({"a.in_sum2": ONES, "a.counts": ONES[:3]}, "do not fit"),
        ({"a.in_sum2": ONES, "a.counts": ONES[:0]}, "do not fit"),
        ({"a.in_sum2": ONES.astype(np.float16), "a.counts": ONES[:1]}, "F16 of shape"),
        ({"a.in_sum2": ONES, "a.counts": ONES[:1] * np.nan}, "impossible"),
        ({"a.in_sum2": ONES, "a.counts": -ONES[:1]}, "impossible"),
        ({"a.in_sum2": ONES, "a.counts": ONES[:1] * np.float32(1e30)}, "impossible"),
        ({"a.in_sum2": ONES * np.inf, "a.counts": ONES[:1]}, "infinite"),
    ],
)
def test_refuses_a_damaged_gguf_matrix(tmp_path, tensors, message):
    ggufkit.save(tmp_path / "x.gguf", tensors, METADATA)
    with pytest.raises(FormatError, match=message):
        Imatrix.open(tmp_path / "x.gguf")


def test_refuses_a_model_as_importance_matrix(smollm2):
    with pytest.raises(FormatError, match="this GGUF file is not an importance matrix"):
        Imatrix.open(smollm2)


@given(
    arrays(np.float32, (2, 3), elements=st.floats(0, 2.0**100, width=32)),
    st.lists(st.integers(0, 2**24), min_size=2, max_size=2),
)
def test_saved_gguf_matrix_is_read_back(tmp_path_factory, sums, counts):
    matrix = Imatrix({"a": Entry(sums, np.array(counts, np.int64))}, ("x",), 3)
    path = tmp_path_factory.mktemp("round") / "x.gguf"
    assert same(Imatrix.open(matrix.save(path)), matrix)
