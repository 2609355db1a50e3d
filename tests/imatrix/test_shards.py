"""`imatrix compute --shard I/N`: the shards of a text together give what one run gives."""

from __future__ import annotations

import numpy as np
import pytest

import measured_llama
import real  # noqa: F401 (marks these tests: they run llama.cpp)
from ggufkit.errors import ValueTypeError
from ggufkit.imatrix import compute
from ggufkit.imatrix.compute import compute_imatrix
from ggufkit.imatrix.hessian import Hessian
from ggufkit.imatrix.hessian_merge import merge_hessians
from ggufkit.imatrix.matrix import Imatrix, merge
from ggufkit.imatrix.shards import parse_shard, shard_of
from shell import done
from shell import ggufkit as run

CHUNKS, SHARDS = 21, 3
READING = {"context": 16, "batch": 32, "threads": 1}
COMMON = ("--context", 16, "--batch", 32, "--threads", 1, "--from-chunk", 2, "--chunks", CHUNKS)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    text = measured_llama.text(folder / "text.txt", 3000)
    return measured_llama.save(folder / "m.gguf"), text


@pytest.fixture
def computed(monkeypatch):
    """Collect the chunks that llama.cpp computes."""
    chunks = []

    def computing(session, group, batch, _inner=compute._compute_group):
        chunks.extend(map(tuple, group))
        return _inner(session, group, batch)

    monkeypatch.setattr(compute, "_compute_group", computing)
    return chunks


@pytest.mark.parametrize(("count", "shards"), [(1, 1), (7, 1), (7, 3), (7, 7), (100, 9)])
def test_each_batch_is_in_one_shard(count, shards):
    parts = [shard_of(range(count), (number, shards)) for number in range(1, shards + 1)]
    assert [batch for part in parts for batch in part] == list(range(count))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_shards_read_each_chunk_once_and_add_up_to_one_run(inputs, computed, tmp_path):
    whole_path = tmp_path / "whole.gguf"
    done("imatrix", "compute", *inputs, "-o", whole_path, *COMMON)
    one_run, paths = computed[:], [tmp_path / f"{number}.gguf" for number in range(SHARDS)]
    computed.clear()
    for number, path in enumerate(paths, 1):
        shard = ("--shard", f"{number}/{SHARDS}")
        done("imatrix", "compute", *inputs, "-o", path, *COMMON, *shard, "--resume")
    assert computed == one_run
    assert len(computed) == CHUNKS
    done("imatrix", "merge", *paths, "-o", tmp_path / "merged.gguf")
    merged, whole = map(Imatrix.open, (tmp_path / "merged.gguf", whole_path))
    assert (merged.chunk_count, merged.chunk_size) == (whole.chunk_count, whole.chunk_size)
    assert merged.entries.keys() == whole.entries.keys()
    for name, entry in whole.entries.items():
        assert np.array_equal(merged.entries[name].counts, entry.counts)
        np.testing.assert_allclose(merged.entries[name].sums, entry.sums, rtol=1e-5)


def test_hessians_of_shards_add_up_to_one_run(inputs, tmp_path):
    options = {**READING, "chunks": 24}
    paths = [tmp_path / f"{number}.gguf" for number in range(SHARDS)]
    parts = [
        compute_imatrix(*inputs, **options, hessian=path, shard=(number, SHARDS))
        for number, path in enumerate(paths, 1)
    ]
    merge_hessians(paths, tmp_path / "merged.gguf")
    whole = compute_imatrix(*inputs, **options, hessian=tmp_path / "whole.gguf")
    merged, one = (Hessian.open(tmp_path / name) for name in ("merged.gguf", "whole.gguf"))
    for key in ("hessian.text", "hessian.model", "hessian.token_count"):
        assert merged.metadata[key] == one.metadata[key]
    assert merge(parts).chunk_count == whole.chunk_count == 24
    for name, moments in one.entries.items():
        added = merged.entries[name]
        assert added.tokens().sum() == moments.tokens().sum() == (24 + 6) * 16  # 6 of random tokens
        assert (added.tokens() > 0).all()  # each shard holds out batches of its own
        sums, expected = (sum(m.total(0, part) for part in (0, 1)) for m in (added, moments))
        np.testing.assert_allclose(sums, expected, rtol=1e-4, atol=1e-5 * abs(expected).max())


def test_shards_without_a_batch_are_refused(inputs, tmp_path):
    with pytest.raises(ValueTypeError, match="the text has 2 batches, too few for 3 shards"):
        compute_imatrix(*inputs, **READING, chunks=4, shard=(1, 3))
    with pytest.raises(ValueTypeError, match="a part that is held out") as caught:
        compute_imatrix(*inputs, **READING, chunks=4, shard=(1, 2), hessian=tmp_path / "h.gguf")
    assert "fewer shards" in caught.value.remedy
    assert not list(tmp_path.iterdir())


def test_numbers_of_a_shard_are_parsed():
    assert parse_shard("2/4") == (2, 4)


@pytest.mark.parametrize("shard", ["0/2", "3/2", "0/0", "-1/2", "1", "1/2/3", "a/b", "", "1/1e3"])
def test_wrong_shard_is_a_usage_error(inputs, tmp_path, shard):
    result = run("imatrix", "compute", *inputs, "-o", tmp_path / "out.gguf", "--shard", shard)
    assert result.code == 2
    assert "--shard" in result.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("shard", [(0, 2), (3, 2)])
def test_wrong_shard_is_refused_in_python(inputs, shard):
    with pytest.raises(ValueTypeError, match="is not a shard I/N"):
        compute_imatrix(*inputs, **READING, shard=shard)
