from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import ggufkit
import real
from ggufkit.conversion.fuse import (
    FUSED_EXPERTS,
    SEPARATE_QKV,
    UNFUSED_QKV,
    fused_experts,
    fused_qkv,
)
from ggufkit.errors import CheckpointError
from ggufkit.models.sources import from_array

RNG = np.random.default_rng(8)
ASKED = """
import json
from gguf import MODEL_ARCH_NAMES, MODEL_TENSOR as T, MODEL_TENSORS
names = {MODEL_ARCH_NAMES[arch]: set(held) for arch, held in MODEL_TENSORS.items()}
three = {T.ATTN_Q, T.ATTN_K, T.ATTN_V}
apart = [n for n, held in names.items() if three <= held and T.ATTN_QKV not in held]
fused = [n for n, held in names.items() if T.FFN_GATE_UP_EXP in held]
print(json.dumps([sorted(apart), sorted(fused)]))
"""


def tensor(name, *shape, dtype="F32"):
    return from_array(name, RNG.normal(size=shape).astype(np.float32), dtype)


def attention(layer, suffix="weight", shapes=((8, 4), (4, 4), (4, 4))):
    names = (f"blk.{layer}.attn_{kind}.{suffix}" for kind in "qkv")
    return [tensor(name, *shape) for name, shape in zip(names, shapes, strict=True)]


def test_tables_are_those_of_llama_cpp():
    paths = {**os.environ, "PYTHONPATH": str(real.llama_cpp_source() / "gguf-py")}
    done = subprocess.run(
        [sys.executable, "-c", ASKED], env=paths, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [sorted(UNFUSED_QKV), sorted(FUSED_EXPERTS)]


def test_queries_keys_and_values_become_one_in_the_place_of_the_last():
    q, k, v = attention(0)
    norm = tensor("blk.0.attn_norm.weight", 4)
    fused = fused_qkv([k, q, norm, v], "llama")
    assert [tensor.name for tensor in fused] == ["blk.0.attn_norm.weight", "blk.0.attn_qkv.weight"]
    assert np.array_equal(
        fused[1].numpy(), np.concatenate([tensor.numpy() for tensor in (q, k, v)])
    )


def test_biases_become_one_too():
    biases = attention(1, "bias", ((8,), (4,), (4,)))
    fused = {tensor.name: tensor for tensor in fused_qkv([*attention(1), *biases], "qwen2")}
    assert set(fused) == {"blk.1.attn_qkv.weight", "blk.1.attn_qkv.bias"}
    expected = np.concatenate([bias.numpy() for bias in biases])
    assert np.array_equal(fused["blk.1.attn_qkv.bias"].numpy(), expected)


def test_tensors_of_several_types_become_f32():
    q, k, v = attention(0)
    (fused,) = fused_qkv([q, k, tensor(v.name, *v.shape, dtype="BF16")], "llama")
    assert fused.type.name == "F32"


@pytest.mark.parametrize("architecture", [UNFUSED_QKV[0], SEPARATE_QKV[0]])
def test_architectures_without_such_a_tensor_stay_as_they_are(architecture):
    assert len(fused_qkv(attention(0), architecture)) == 3


def test_layer_with_some_biases_stays_as_it_is():
    lone = tensor("blk.0.attn_q.bias", 8)
    assert len(fused_qkv([*attention(0), lone], "llama")) == 4


def test_experts_have_their_gate_before_their_other_input():
    gate = tensor("blk.0.ffn_gate_exps.weight", 3, 2, 4)
    up = tensor("blk.0.ffn_up_exps.weight", 3, 2, 4)
    (fused,) = fused_experts([up, gate], "qwen3next")
    assert fused.name == "blk.0.ffn_gate_up_exps.weight"
    assert np.array_equal(fused.numpy(), np.concatenate([gate.numpy(), up.numpy()], axis=1))


def test_refuses_experts_that_llama_cpp_reads_apart():
    gate = tensor("blk.0.ffn_gate_exps.weight", 3, 2, 4)
    up = tensor("blk.0.ffn_up_exps.weight", 3, 2, 4)
    with pytest.raises(CheckpointError, match="does not fuse the experts of qwen3moe"):
        fused_experts([gate, up], "qwen3moe")
    assert fused_experts([gate], "qwen3moe") == [gate]


def test_fused_file_loads_as_one_matrix(tmp_path):
    fused = fused_qkv(attention(0), "llama")
    ggufkit.save(tmp_path / "m.gguf", {tensor.name: tensor.numpy() for tensor in fused})
    with ggufkit.open(tmp_path / "m.gguf") as model:
        assert model.tensors["blk.0.attn_qkv.weight"].shape == (16, 4)
