"""Variants in memory measure what written files measure."""

from __future__ import annotations

import numpy as np
import pytest

import ggufkit
import measured_llama
import real  # noqa: F401 (marks these tests: they run llama.cpp)
from ggufkit.errors import MissingTensorError, ShapeError
from ggufkit.evaluation.variants import Variants

CONTEXT = 32
CHANGED = ("blk.0.ffn_down.weight", "blk.1.attn_q.weight", "token_embd.weight")


@pytest.fixture(scope="module", params=["F32", "F16", "Q8_0"])
def base(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "base.gguf"
    plain = measured_llama.save(path.with_name("plain.gguf"))
    ggufkit.quantize(plain, request.param).write(path)
    return path


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return measured_llama.text(tmp_path_factory.mktemp("text") / "text.txt")


@pytest.fixture(scope="module")
def variants(base, text):
    with Variants(base, text, context=CONTEXT, threads=1) as variants:
        yield variants


def changed(base, *names):
    with ggufkit.open(base) as model:
        return {
            name: np.round(model.tensors[name].numpy().astype(np.float32) * 8) / 8 for name in names
        }


def written(base, values, path):
    """Write the model with other values in the same types."""
    with ggufkit.open(base) as model:
        others = {name: (value, model.tensors[name].type) for name, value in values.items()}
        ggufkit.save(path, dict(model.tensors) | others, model.metadata)
    return path


def test_the_unchanged_model_has_its_own_perplexity(variants, base, text):
    expected = ggufkit.evaluate(base, text, context=CONTEXT, threads=1).models[0]
    assert np.array_equal(variants.scores.values, expected.scores.values)


@pytest.mark.parametrize("names", [CHANGED[:1], CHANGED[1:2], CHANGED])
def test_a_changed_tensor_gives_the_scores_of_a_written_file(variants, base, text, names, tmp_path):
    values = changed(base, *names)
    file = written(base, values, tmp_path / "changed.gguf")
    expected = ggufkit.evaluate(file, text, base=base, context=CONTEXT, threads=1).models[0]
    measured = variants.measure(values)
    assert measured.field("divergence").mean() > 1e-5
    assert np.array_equal(measured.values, expected.scores.values)


def test_the_model_is_as_before_after_a_measurement(variants, base):
    before = variants.measure({}).values
    variants.measure(changed(base, *CHANGED))
    assert np.array_equal(variants.measure({}).values, before)


def test_a_tensor_that_is_missing_or_of_another_shape_is_refused(variants):
    with pytest.raises(MissingTensorError, match="no tensor 'x'"):
        variants.measure({"x": np.zeros(3)})
    with pytest.raises(ShapeError, match=r"has the shape \(64, 64\), not \(3,\)"):
        variants.measure({"blk.0.attn_q.weight": np.zeros(3)})
