"""The search of `quantize`: what it changes in a model, and that writing keeps searches apart."""

from __future__ import annotations

import numpy as np
import pytest

import ggufkit
from ggufkit.errors import ValueTypeError
from ggufkit.imatrix.matrix import Entry
from ggufkit.output.layout import layout
from ggufkit.output.resume import digest
from ggufkit.quantization.provenance import quantize_with_provenance
from ggufkit.quantization.quantize import decide
from ggufkit.quantization.reproduce import reproduce
from shell import done

RNG = np.random.default_rng(3)
TENSORS = {
    "blk.0.ffn_up.weight": RNG.standard_normal((64, 512), np.float32),
    "blk.0.ffn_down.weight": RNG.standard_normal((64, 512), np.float32),
    "norm.bias": np.ones(96, np.float32),
}
KEYS = {"general.architecture": "llama"}


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source.gguf"
    ggufkit.save(path, TENSORS, KEYS)
    return path


def lost(path, name):
    with ggufkit.open(path) as model:
        decoded = model.tensors[name].numpy()
    return float(np.square(decoded - TENSORS[name]).sum())


@pytest.mark.parametrize("search", ["better", "best"])
def test_searched_file_has_the_same_size_and_a_smaller_error(source, tmp_path, search):
    plain, searched = tmp_path / "plain.gguf", tmp_path / "found.gguf"
    with ggufkit.open(source) as model:
        ggufkit.write(ggufkit.quantize(model, "Q4_0"), plain)
        ggufkit.write(ggufkit.quantize(model, "Q4_0", search=search), searched)
    with ggufkit.open(plain) as one, ggufkit.open(searched) as other:
        assert {t.name: t.type for t in one.tensors.values()} == {
            t.name: t.type for t in other.tensors.values()
        }
        assert other.metadata["quantize.search"] == search
        assert "quantize.search" not in one.metadata
    assert lost(searched, "blk.0.ffn_up.weight") < 0.97 * lost(plain, "blk.0.ffn_up.weight")


def test_result_does_not_depend_on_threads(source, tmp_path):
    written = []
    for threads in (1, 3):
        out = tmp_path / f"{threads}.gguf"
        with ggufkit.open(source) as model:
            quantized = ggufkit.quantize(model, "Q3_K_M", search="better")
            ggufkit.write(quantized, out, threads=threads)
        written.append(out.read_bytes())
    assert written[0] == written[1]


def test_decisions_name_the_search_of_each_tensor(source):
    with ggufkit.open(source) as model:
        options = {"types": {"blk.0.ffn_up.weight": "Q8_0", "blk.0.ffn_down.weight": "Q4_K"}}
        done = decide(model, search="best", **options)
    searches = {decision.after.name: decision.search for decision in done.decisions}
    assert searches == {
        "blk.0.ffn_up.weight": None,
        "blk.0.ffn_down.weight": "best",
        "norm.bias": None,
    }
    assert [decision.after.name for decision in done.unsearched] == ["blk.0.ffn_up.weight"]


def first_changed(model, **options):
    return next(decision for decision in decide(model, **options).decisions if decision.is_changed)


@pytest.mark.parametrize(
    ("search", "left"), [("better", {"Q4_0", "Q5_0", "Q3_K"}), ("best", {"Q4_0"})]
)
def test_types_that_gain_little_are_not_searched_with_importance_data(source, search, left):
    weights = np.ones(512, np.float32)
    imatrix = ggufkit.Imatrix({n: Entry(weights[None], np.ones(1, np.int64)) for n in TENSORS})
    with ggufkit.open(source) as model:
        for kind in ("Q4_0", "Q5_0", "Q3_K", "Q4_K"):
            types = dict.fromkeys(["blk.0.ffn_up.weight"], kind)
            for data in (None, imatrix):
                done = first_changed(model, search=search, types=types, imatrix=data)
                assert done.search == (None if data and kind in left else search)
                plain = first_changed(model, types=types, imatrix=data)
                is_same = plain.after.numpy().tobytes() == done.after.numpy().tobytes()
                assert is_same == (done.search is None)


def test_a_model_without_searched_tensors_does_not_claim_a_search(source):
    with ggufkit.open(source) as model:
        assert "quantize.search" not in ggufkit.quantize(model, "Q8_0", search="best").metadata


def test_resuming_tells_searches_apart(source):
    with ggufkit.open(source) as model:
        plans = [
            digest(layout(ggufkit.quantize(model, "Q4_0", search=search, override_kv=keys), "o"))
            for search, keys in ((None, {"quantize.search": "best"}), ("best", {}))
        ]
    assert plans[0] != plans[1]


def test_an_unknown_search_is_refused(source):
    with ggufkit.open(source) as model, pytest.raises(ValueTypeError, match="better, best"):
        ggufkit.quantize(model, "Q4_0", search="bester")


def test_a_target_size_counts_the_key_of_the_search(source, tmp_path):

    out = tmp_path / "out.gguf"
    with ggufkit.open(source) as model:
        exact = layout(ggufkit.quantize(model, "Q4_0", search="best"), "o").nbytes
    done("quantize", source, out, "--target-size", exact, "--search", "best")
    assert out.stat().st_size <= exact


def test_a_searched_file_is_reproduced(source, tmp_path):
    out = tmp_path / "out.gguf"
    quantized = quantize_with_provenance(source, "Q4_0", search="better")
    ggufkit.write(quantized, out)
    assert reproduce(out, source)
