from __future__ import annotations

import numpy as np
import pytest

import ggufkit
import llama_quantize
from ggufkit.errors import TensorTypeError
from ggufkit.model import Tensor, Tensors
from ggufkit.quantizing import KEPT_NAMES, KEPT_PARTS, KEPT_PARTS_OF, TARGETS
from ggufkit.types import tensor_type
from ggufkit.values import CANONICAL
from ggufkit.writing import as_tensor

RNG = np.random.default_rng(7)

# What llama.cpp must know of a model to quantize it.
HYPERPARAMETERS = {
    "llama": {
        "block_count": 1,
        "context_length": 64,
        "embedding_length": 64,
        "feed_forward_length": 64,
        "attention.head_count": 2,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "vocab_size": 32,
    }
}
HYPERPARAMETERS["glm5-next"] = HYPERPARAMETERS["llama"] | {
    "attention.head_count_kv": 2,
    "attention.key_length_mla": 32,
    "attention.value_length_mla": 32,
    "attention.q_lora_rank": 8,
    "attention.kv_lora_rank": 8,
    "ssm.conv_kernel": 4,
    "kda.head_dim": 32,
    "expert_count": 2,
    "expert_used_count": 1,
    "expert_feed_forward_length": 64,
    "expert_shared_count": 1,
    "attention.indexer.head_count": 2,
    "attention.indexer.key_length": 32,
    "attention.indexer.top_k": 4,
    "attention.indexer.kpool": 2,
    "hyper_connection.count": 4,
    "hyper_connection.sinkhorn_iterations": 1,
    "hyper_connection.epsilon": 1e-5,
}
SHAPES = {
    "output.weight": (2, 64),
    "token_embd.weight": (2, 64),
    "blk.0.ffn_up.weight": (2, 64),
    "blk.0.ffn_gate_exps.weight": (3, 2, 64),
    "one_axis.weight": (64,),
    "one_row.weight": (1, 64),
    "one_expert_of_one_row.weight": (1, 1, 64),
    "experts_of_one_row.weight": (3, 1, 64),
    "unfit.weight": (3, 48),
    "unfit_in_f16.weight": (3, 40),
    "blk.0.ffn_up.bias": (2, 64),
    "weight": (2, 64),
    "weight.after": (2, 64),
    "short": (2, 64),
    "shorter": (2, 64),
}


def named_as(part):
    return f"blk.0.{part}" if part.endswith("weight") else f"blk.0.{part}x.weight"


def arrays():
    """Every shape and name that llama.cpp singles out, and every name that it knows at all."""
    singled_out = map(named_as, KEPT_PARTS + KEPT_PARTS_OF["glm5-next"])
    names = [*KEPT_NAMES, *singled_out, *llama_quantize.known_names()]
    shapes = dict.fromkeys(names, (2, 64)) | SHAPES
    made = {name: RNG.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    made["unfit_in_f16.weight"] = made["unfit_in_f16.weight"].astype(np.float16)
    return made


def metadata(architecture):
    hyper = {f"{architecture}.{k}": v for k, v in HYPERPARAMETERS[architecture].items()}
    return {"general.architecture": architecture, "tokenizer.ggml.model": "none"} | hyper


def model_of(tensors, **more):
    made = (as_tensor(name, value) for name, value in tensors.items())
    return ggufkit.Model(ggufkit.Metadata(metadata("llama") | more), Tensors(made))


def typed(metadata):
    """Every key with its type and bytes; the order is not compared."""
    return {
        key: (metadata.type_name(key), ggufkit.Metadata({key: metadata[key]}).encode(CANONICAL))
        for key in metadata
    }


def assert_same(ours, theirs):
    with ggufkit.open(ours) as a, ggufkit.open(theirs) as b:
        assert typed(a.metadata) == typed(b.metadata)
        assert set(a.tensors) == set(b.tensors)
        types = {name: str(tensor.type) for name, tensor in a.tensors.items()}
        assert types == {name: str(b.tensors[name].type) for name in types}
        for name, tensor in a.tensors.items():
            assert tensor.raw().tobytes() == b.tensors[name].raw().tobytes(), name


@pytest.mark.parametrize("target", TARGETS)
def test_real_model_becomes_what_llama_quantize_makes_of_it(smollm2, target, tmp_path):
    assert llama_quantize.quantize(smollm2, tmp_path / "theirs.gguf", target)
    with ggufkit.open(smollm2) as model:
        ggufkit.write(ggufkit.quantize(model, target), tmp_path / "ours.gguf")
    assert_same(tmp_path / "ours.gguf", tmp_path / "theirs.gguf")


def test_mixed_recipe_becomes_what_llama_quantize_makes_of_it(gemma3, tmp_path):
    assert llama_quantize.quantize(gemma3, tmp_path / "theirs.gguf", "Q5_1")
    with ggufkit.open(gemma3) as model:
        ggufkit.write(ggufkit.quantize(model, "Q5_1"), tmp_path / "ours.gguf")
    assert_same(tmp_path / "ours.gguf", tmp_path / "theirs.gguf")


@pytest.mark.parametrize("architecture", HYPERPARAMETERS)
@pytest.mark.parametrize("target", ["Q8_0", "Q4_1", "BF16"])
def test_llama_quantize_keeps_the_same_tensors(architecture, target, tmp_path):
    source = tmp_path / "in.gguf"
    ggufkit.save(source, arrays(), metadata(architecture))
    assert llama_quantize.quantize(source, tmp_path / "theirs.gguf", target)
    with ggufkit.open(source) as model:
        ggufkit.write(ggufkit.quantize(model, target), tmp_path / "ours.gguf")
    assert_same(tmp_path / "ours.gguf", tmp_path / "theirs.gguf")


class Untouchable:
    """A source that nothing may read."""

    byte_order = "little"
    span = None

    def read(self, start, stop):
        raise AssertionError(f"rows {start} to {stop} were read")


def test_no_tensor_is_read_before_the_model_is_written():
    tensor = Tensor.over("x.weight", tensor_type("F32"), (2, 64), Untouchable())
    quantized = ggufkit.quantize(model_of({"x.weight": tensor}), "Q8_0")
    assert quantized.tensors["x.weight"].nbytes == 2 * 68
    with pytest.raises(AssertionError):
        quantized.tensors["x.weight"].raw()


def test_order_of_tensors_and_keys_is_kept():
    names = ["b.weight", "a.weight", "c.bias"]
    model = model_of(dict.fromkeys(names, np.ones((2, 32), np.float32)))
    quantized = ggufkit.quantize(model, "Q4_0")
    assert list(quantized.tensors) == names
    assert list(quantized.metadata)[: len(model.metadata)] == list(model.metadata)


def test_recipe_and_version_are_written_over_old_ones():
    old = {"general.file_type": 15, "general.quantization_version": 1, "split.count": 0}
    quantized = ggufkit.quantize(model_of({}, **old), "Q5_1")
    assert quantized.metadata["general.file_type"] == 9
    assert quantized.metadata.type_name("general.file_type") == "uint32"
    assert quantized.metadata["general.quantization_version"] == 2
    assert "split.count" not in quantized.metadata


def test_integers_stay_integers():
    quantized = ggufkit.quantize(model_of({"t.weight": np.ones((2, 32), np.int32)}), "Q8_0")
    assert quantized.tensors["t.weight"].type == tensor_type("I32")


@pytest.mark.parametrize("target", ["I32", "Q8_1", "TYPE_4711", "Q4_2"])
def test_other_types_are_refused_with_the_list_of_possible_ones(target):
    with pytest.raises(TensorTypeError) as caught:
        ggufkit.quantize(model_of({}), target)
    assert "Q8_0" in caught.value.remedy


def test_tensor_of_unknown_type_is_refused():
    tensor = Tensor("x.weight", tensor_type(4711), (2, 64), 136, Untouchable())
    with pytest.raises(TensorTypeError):
        ggufkit.quantize(model_of({"x.weight": tensor}), "Q8_0")


def test_big_endian_model_quantizes_to_the_same_numbers(tmp_path):
    values = RNG.standard_normal((4, 64), np.float32)
    for order in ("little", "big"):
        ggufkit.save(tmp_path / order, {"x.weight": values}, byte_order=order)
        with ggufkit.open(tmp_path / order) as model:
            ggufkit.write(ggufkit.quantize(model, "Q4_1"), tmp_path / f"{order}.q")
    little, big = (ggufkit.open(tmp_path / f"{order}.q") for order in ("little", "big"))
    assert big.byte_order == "big"
    assert np.array_equal(little.tensors["x.weight"].numpy(), big.tensors["x.weight"].numpy())
    assert not np.array_equal(little.tensors["x.weight"].raw(), big.tensors["x.weight"].raw())
