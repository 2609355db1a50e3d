from __future__ import annotations

import json

import numpy as np
import pytest

import ggufkit
from ggufkit.errors import CheckpointError
from plain_checkpoint import CONFIG, whole
from tensors_file import safetensors_bytes, write_checkpoint

ARCH = """
like = "llama"
name = "llama"
classes = ["PlainForCausalLM"]
vocabulary = "none"

[metadata]
dense_2_feat_in = "dense_2_feat_in"
dense_2_feat_out = "dense_2_feat_out"

[tensors]
"dense_2.weight" = "dense_2.weight"
"""
WEIGHT = np.arange(48, dtype=np.float32).reshape(6, 8)


@pytest.fixture
def checkpoint(tmp_path):
    (tmp_path / "arch").mkdir()
    (tmp_path / "arch" / "plain.toml").write_text(ARCH)
    folder = write_checkpoint(tmp_path / "model", CONFIG, model=whole())
    modules = [{"path": "", "type": "x.Transformer"}, {"path": "2_Dense", "type": "x.Dense"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "2_Dense").mkdir()
    (folder / "2_Dense/config.json").write_text('{"in_features": 8, "out_features": 6}')
    module = safetensors_bytes({"linear.weight": WEIGHT, "linear.bias": WEIGHT[0]})
    (folder / "2_Dense/model.safetensors").write_bytes(module)
    return folder


def convert(folder):
    return ggufkit.convert(folder, arch_path=[folder.parent / "arch"], dense_modules=True)


def test_dense_layers_come_first_with_their_sizes_as_keys(checkpoint):
    with convert(checkpoint) as model:
        assert next(iter(model.tensors)) == "dense_2.weight"
        assert model.metadata["llama.dense_2_feat_in"] == 8
        assert model.metadata["llama.dense_2_feat_out"] == 6
        assert np.array_equal(model.tensors["dense_2.weight"].numpy(), WEIGHT)


def test_reports_a_checkpoint_without_dense_layers(checkpoint):
    (checkpoint / "modules.json").unlink()
    with pytest.raises(CheckpointError, match="has no dense modules"):
        convert(checkpoint)


def test_reports_a_dense_layer_without_its_file(checkpoint):
    (checkpoint / "2_Dense/model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"2_Dense/model\.safetensors is missing"):
        convert(checkpoint)


def test_reports_a_dense_layer_in_a_damaged_file(checkpoint):
    (checkpoint / "2_Dense/model.safetensors").write_bytes(b"\xff" * 20)
    with pytest.raises(CheckpointError, match=r"2_Dense/model\.safetensors cannot be read"):
        convert(checkpoint)


def test_refuses_a_dense_layer_outside_the_folder(checkpoint):
    modules = [{"path": "../model/2_Dense", "type": "x.Dense"}]
    (checkpoint / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(CheckpointError, match="leads out of the folder"):
        convert(checkpoint)
