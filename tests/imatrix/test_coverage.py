"""How well a text covers a model: tokens of each expert, and what its second half changed."""

from __future__ import annotations

import numpy as np
import pytest

import measured_llama
import real  # noqa: F401 (marks tests of this file: some run llama.cpp)
from ggufkit.imatrix import compute
from ggufkit.imatrix.compute import compute_imatrix
from ggufkit.imatrix.coverage import cosines, expert_coverage, half_similarity
from ggufkit.imatrix.matrix import Entry, Imatrix

OPTIONS = {"context": 16, "batch": 32, "threads": 1}


def entry(*counts):
    return Entry(np.ones((len(counts), 8), np.float32), np.array(counts, np.int64))


def test_matrices_of_an_expert_count_once():
    experts = {
        f"blk.{layer}.ffn_{kind}_exps.weight": entry(*counts)
        for layer, counts in enumerate([(5, 0, 7, 90), (3, 4, 0, 0)])
        for kind in ("down", "gate", "up")
    }
    coverage = expert_coverage(Imatrix({**experts, "blk.0.attn_q.weight": entry(100)}))
    assert (coverage.experts, coverage.unreached) == (8, 3)
    assert (coverage.least, coverage.median, coverage.most) == (0, 3.5, 90)
    assert coverage.tensors == tuple(experts)


def test_same_counts_in_two_layers_are_experts_of_both():
    layers = {f"blk.{layer}.ffn_up_exps.weight": entry(5, 5) for layer in (0, 1)}
    assert expert_coverage(Imatrix(layers)).experts == 4


def test_model_without_experts_has_no_coverage():
    assert expert_coverage(Imatrix({"blk.0.attn_q.weight": entry(100)})) is None


def test_cosine_is_one_for_the_same_direction_and_zero_for_no_data():
    whole = {
        name: Entry(np.float32([values]), np.array([9]))
        for name, values in {"same": [2, 4], "other": [3, 1], "none": [0, 0]}.items()
    }
    half = {"same": np.float32([1, 2]), "other": np.float32([0, 1]), "none": np.float32([0, 0])}
    values = cosines(half, whole)
    assert values == {"same": 1, "other": pytest.approx(10**-0.5, abs=1e-6), "none": 0}
    similar = half_similarity(Imatrix(whole, half_cosines=values))
    assert (similar.least, similar.tensor) == (0, "none")
    assert similar.median == values["other"]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    text = measured_llama.text(folder / "text.txt", 3000)
    return measured_llama.save(folder / "m.gguf"), text


@pytest.mark.parametrize("hessian", [False, True])
def test_half_of_the_text_is_what_a_run_over_it_gives(inputs, tmp_path, hessian):
    more = {"hessian": tmp_path / "h.gguf", "memory": 1} if hessian else {}
    whole = compute_imatrix(*inputs, **OPTIONS, chunks=20, **more)
    half = compute_imatrix(*inputs, **OPTIONS, chunks=10)
    assert whole.half_cosines.keys() == whole.entries.keys()
    for name, value in whole.half_cosines.items():
        sums, all_sums = (m.entries[name].sums[0].astype(float) for m in (half, whole))
        norms = np.linalg.norm(sums) * np.linalg.norm(all_sums)
        assert value == pytest.approx(sums @ all_sums / norms, abs=1e-6)
    assert 0 < half_similarity(whole).least < 1


@pytest.mark.parametrize("stop", [5, 15])
def test_stopped_run_knows_the_first_half(inputs, tmp_path, monkeypatch, stop):
    class StopError(Exception):
        pass

    def stopping(passed, _total):
        if passed > stop:
            raise StopError

    monkeypatch.setattr(compute, "EVERY_CHUNKS", 2)
    options = {**OPTIONS, "chunks": 20, "resume": tmp_path / "out.gguf"}
    with pytest.raises(StopError):
        compute_imatrix(*inputs, **options, progress=stopping)
    whole = compute_imatrix(*inputs, **OPTIONS, chunks=20)
    assert compute_imatrix(*inputs, **options).half_cosines == whole.half_cosines


def test_one_batch_has_no_half(inputs):
    assert half_similarity(compute_imatrix(*inputs, **OPTIONS, chunks=2)) is None
