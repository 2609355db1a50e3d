"""An extracted adapter is the best of its rank, and says what it lacks."""

from __future__ import annotations

import numpy as np
import pytest

import ggufkit
from ggufkit.errors import AdapterError
from ggufkit.lora import extract_lora as extraction
from ggufkit.models.model import Model, Tensors
from ggufkit.models.sources import from_array

RNG = np.random.default_rng(8)
NAMES = ("token_embd.weight", "blk.0.attn_q.weight", "blk.0.ffn_down_exps.weight")
SHAPES = dict(zip(NAMES, ((90, 48), (64, 80), (3, 40, 56)), strict=True))
NORM = "blk.0.attn_norm.weight"


def model(arrays, architecture="llama"):
    tensors = [from_array(name, array.astype(np.float32)) for name, array in arrays.items()]
    return Model(ggufkit.Metadata({"general.architecture": architecture}), Tensors(tensors))


@pytest.fixture
def weights():
    arrays = {name: RNG.standard_normal(shape) for name, shape in SHAPES.items()}
    return arrays | {NORM: RNG.standard_normal(48)}


def low_rank(shape, rank):
    *stacks, rows, columns = shape
    b, a = RNG.standard_normal((*stacks, rows, rank)), RNG.standard_normal((*stacks, rank, columns))
    return 0.01 * (b @ a)


@pytest.mark.parametrize("read_bytes", [1 << 12, 1 << 25], ids=["many reads", "one read"])
def test_low_rank_change_is_found_and_merges_back(weights, read_bytes, monkeypatch):
    monkeypatch.setattr(extraction, "READ_BYTES", read_bytes)
    tuned = weights | {name: weights[name] + low_rank(SHAPES[name], 4) for name in NAMES}
    extracted = ggufkit.extract_lora(model(weights), model(tuned), rank=4)
    assert [tensor.name for tensor in extracted.tensors] == list(NAMES)
    assert all(tensor.lost < 1e-3 for tensor in extracted.tensors)
    merged = ggufkit.merge_lora(model(weights), [extracted.model])
    for name in NAMES:
        np.testing.assert_allclose(merged.tensors[name].numpy(), tuned[name], atol=1e-5)


def test_error_is_within_a_percent_of_the_best(weights):
    name = "blk.0.attn_q.weight"
    change = 0.1 * RNG.standard_normal(SHAPES[name])
    tuned = weights | {name: weights[name] + change}
    tensor = ggufkit.extract_lora(model(weights), model(tuned), rank=8).tensors[0]
    values = np.linalg.svd(change, compute_uv=False)
    best = np.sqrt(np.sum(values[8:] ** 2) / np.sum(values**2))
    assert best * 0.999 < tensor.lost < best * 1.01
    assert tensor.changed == pytest.approx(
        np.linalg.norm(change) / np.linalg.norm(weights[name]), rel=1e-4
    )


def test_rank_is_at_most_that_of_the_matrix(weights):
    name = "token_embd.weight"
    tuned = weights | {name: weights[name] + 1}
    extracted = ggufkit.extract_lora(model(weights), model(tuned), rank=1000)
    assert extracted.tensors[0].rank == 48
    shapes = [extracted.model.tensors[name + end].shape for end in (".lora_a", ".lora_b")]
    assert shapes == [(90, 48), (48, 48)]  # as llama.cpp wants those of embeddings


def test_tensor_that_an_adapter_cannot_change_is_listed(weights):
    tuned = weights | {NORM: weights[NORM] * 2, NAMES[1]: weights[NAMES[1]] * 1.1}
    by_name = {
        tensor.name: tensor
        for tensor in ggufkit.extract_lora(model(weights), model(tuned), rank=2).tensors
    }
    assert (by_name[NORM].rank, by_name[NORM].lost) == (0, 1.0)


def test_equal_models_have_no_adapter(weights):
    with pytest.raises(AdapterError, match="no matrix differs"):
        ggufkit.extract_lora(model(weights), model(weights), rank=2)


def test_everything_that_does_not_fit_is_listed(weights):
    other = {NAMES[0]: weights[NAMES[0]][:, :32], "more.weight": weights[NAMES[1]]}
    with pytest.raises(AdapterError) as caught:
        ggufkit.extract_lora(model(weights), model(other, "qwen2"), rank=2)
    assert len(caught.value.problems) == 4


def test_rank_of_zero_is_refused(weights):
    with pytest.raises(AdapterError, match="at least 1"):
        ggufkit.extract_lora(model(weights), model(weights), rank=0)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_weights_that_are_no_numbers_are_refused(weights, number):
    spoiled = weights[NAMES[1]].copy()
    spoiled[3, 4] = number
    with pytest.raises(AdapterError, match=r"blk.0.attn_q.weight contains NaN or infinity"):
        ggufkit.extract_lora(model(weights), model(weights | {NAMES[1]: spoiled}), rank=2)
