"""Models of a target size: never larger, with bytes where they reduce the measured error most."""

from __future__ import annotations

import numpy as np
import pytest

import ggufkit
from ggufkit.errors import ShapeError, TensorTypeError, ValueTypeError
from ggufkit.format.types import tensor_type
from ggufkit.imatrix.matrix import Entry, Imatrix
from ggufkit.models.model import bits_per_weight
from ggufkit.models.sources import from_array
from ggufkit.models.tensors.in_memory import as_tensor
from ggufkit.quantization.losses.relative_errors import measure
from ggufkit.quantization.losses.sensitivities import sensitivities
from ggufkit.quantization.target import target

WIDTH = 256
KINDS = [tensor_type(name) for name in ("Q8_0", "Q4_K", "Q2_K", "IQ2_XXS")]


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("target") / "in.gguf"
    shapes = {"attn_q": 64, "attn_v": 64, "ffn_up": 128, "ffn_gate": 128}
    tensors = {
        f"blk.{layer}.{name}.weight": random(rows, WIDTH, seed=layer * 10 + rows)
        for layer in range(2)
        for name, rows in shapes.items()
    }
    tensors |= {f"blk.{layer}.attn_norm.weight": np.ones(WIDTH, np.float32) for layer in range(2)}
    tensors["blk.0.ffn_down.weight"] = random(WIDTH, 96)
    ggufkit.save(path, tensors, {"general.architecture": "llama", "llama.block_count": 2})
    return ggufkit.open(path)


@pytest.fixture(scope="module")
def imatrix(model):
    rng = np.random.default_rng(2)
    entries = {
        tensor.name: Entry(rng.random((1, tensor.shape[-1]), np.float32), np.array([1]))
        for tensor in model.tensors.values()
        if "norm" not in tensor.name
    }
    return Imatrix(entries, ("x",), 1)


def written(model, path, types, imatrix=None):
    ggufkit.write(ggufkit.quantize(model, types=types, imatrix=imatrix), path)
    return path.stat().st_size


@pytest.mark.parametrize("nbytes", [90_000, 100_001, 123_456, 220_000])
def test_file_is_not_a_byte_larger_than_the_target(model, tmp_path, nbytes):
    size = written(model, tmp_path / "out.gguf", target(model, nbytes=nbytes))
    assert nbytes * 0.97 < size <= nbytes


def test_size_counts_the_keys_of_the_imatrix(model, imatrix, tmp_path):
    types = target(model, nbytes=80_000, imatrix=imatrix)
    size = written(model, tmp_path / "out.gguf", types, imatrix)
    assert 80_000 * 0.97 < size <= 80_000


@pytest.mark.parametrize("bpw", [4.25, 6, 8.5])
def test_bits_per_weight_count_all_tensors(model, bpw):
    quantized = ggufkit.quantize(model, types=target(model, bpw=bpw))
    assert bpw * 0.97 < bits_per_weight(quantized.tensors.values()) <= bpw


def test_importance_data_allows_smaller_targets(model, imatrix):
    with pytest.raises(ShapeError, match=r"smallest model has \d\.\d\d bits per weight"):
        target(model, bpw=2.5)
    types = target(model, bpw=2.5, imatrix=imatrix)
    assert any(kind.name.startswith("IQ2") for kind in types.values())


def test_chooses_only_eligible_tensors_and_types_that_fit(model):
    types = target(model, bpw=5)
    assert not any("norm" in name for name in types)
    assert types["blk.0.ffn_down.weight"].block_size == 32


def test_choice_does_not_depend_on_threads(model, imatrix):
    one, four = (target(model, bpw=3.5, imatrix=imatrix, threads=n) for n in (1, 4))
    assert one == four


def test_candidates_can_be_restricted(model):
    types = target(model, bpw=6, candidates=["Q8_0", "q4_0"])
    assert {kind.name for kind in types.values()} == {"Q8_0", "Q4_0"}


def test_progress_counts_tensors(model):
    seen = []
    types = target(model, bpw=9, candidates=["Q8_0"], progress=lambda *both: seen.append(both))
    assert seen == [(n + 1, len(types)) for n in range(len(types))]


def test_no_candidate_for_a_tensor_is_an_error(model):
    with pytest.raises(TensorTypeError, match=r"fits tensor 'blk\.0\.ffn_down\.weight'"):
        target(model, bpw=5, candidates=["Q4_K"])


@pytest.mark.parametrize("both", [{}, {"nbytes": 1, "bpw": 1.0}])
def test_needs_exactly_one_target(model, both):
    with pytest.raises(ValueTypeError, match="a size or bits per weight"):
        target(model, **both)


# Measuring.


def losses(tensor, weights=None):
    return {option.type.name: option.loss for option in measure(tensor, KINDS, weights)}


def test_more_bits_lose_less_and_types_that_need_weights_ask_for_them():
    tensor = from_array("blk.0.ffn_up.weight", random(32, WIDTH))
    plain = losses(tensor)
    assert 0 < plain["Q8_0"] < plain["Q4_K"] < plain["Q2_K"] < 1
    assert set(losses(tensor, np.ones(WIDTH, np.float32))) == set(plain) | {"IQ2_XXS"}


def test_loss_of_a_small_tensor_is_measured_on_all_of_it():
    array = random(8, WIDTH)
    back = ggufkit.quants.dequantize(ggufkit.quants.quantize(array, "Q4_K"), "Q4_K")
    expected = np.square(array - back).sum() / np.square(array).sum()
    assert losses(from_array("a.weight", array))["Q4_K"] == pytest.approx(expected, rel=1e-4)


def test_tensors_of_a_kind_share_its_sensitivity():
    names = [f"blk.{layer}.{kind}.weight" for layer in range(4) for kind in ("attn_q", "attn_v")]
    tied = sensitivities([*names, "token_embd.weight"])
    apart = sensitivities([*names, "token_embd.weight", "output.weight"])
    assert len({tied[name] for name in names}) == 2
    assert tied["blk.0.attn_v.weight"] > tied["blk.0.attn_q.weight"]
    assert sensitivities(names[:2])[names[0]] == pytest.approx(4 * tied[names[0]])
    assert tied["token_embd.weight"] == pytest.approx(
        apart["token_embd.weight"] + apart["output.weight"]
    )


def test_columns_of_weight_zero_have_no_loss():
    array = random(32, WIDTH)
    array[:, WIDTH // 2 :] *= 1000
    weights = np.repeat(np.float32([1, 0]), WIDTH // 2)
    half = from_array("blk.0.ffn_up.weight", np.ascontiguousarray(array[:, : WIDTH // 2]))
    assert losses(from_array("blk.0.ffn_up.weight", array), weights)["Q8_0"] == pytest.approx(
        losses(half)["Q8_0"], rel=0.05
    )


def test_each_expert_has_its_own_weights():
    array = random(2, 64, WIDTH)
    array[1] *= 0.01
    tensor = from_array("blk.0.ffn_up_exps.weight", array)
    first = losses(tensor[0:1], np.ones((1, WIDTH), np.float32))
    weights = np.repeat(np.float32([[1], [0]]), WIDTH, axis=1)
    assert losses(tensor, weights)["Q4_K"] == pytest.approx(first["Q4_K"], rel=0.05)


def test_zeros_have_no_loss():
    assert set(losses(from_array("a.weight", np.zeros((4, WIDTH), np.float32))).values()) == {0}


def test_tensor_without_elements_costs_nothing():
    empty = as_tensor("blk.0.attn_q.weight", np.zeros((0, 32), "f4"))
    (option,) = measure(empty, [tensor_type("Q8_0")])
    assert (option.nbytes, option.loss) == (0, 0)
