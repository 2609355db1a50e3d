from __future__ import annotations

import numpy as np
import pytest

import ggufkit
from ggufkit.errors import CheckpointError
from plain_checkpoint import ARCH, CONFIG, PREDICTING, layer, numbers, whole
from tensors_file import write_checkpoint

HEAD = layer(2) | {"model.layers.2.eh_proj.weight": numbers(8, 16)}
KEY = "glm4moe.nextn_predict_layers"


@pytest.fixture
def convert(tmp_path, monkeypatch):
    monkeypatch.setattr("ggufkit.conversion.problems.REFUSED", set())  # the architecture is another

    def converted(tensors, arch=PREDICTING, **options):
        (tmp_path / "arch").mkdir(exist_ok=True)
        (tmp_path / "arch" / "plain.toml").write_text(arch)
        config = CONFIG | {"num_nextn_predict_layers": 1}
        folder = write_checkpoint(tmp_path / "model", config, model=tensors)
        return ggufkit.convert(folder, arch_path=[tmp_path / "arch"], **options)

    return converted


def layers(model):
    return {int(name.split(".")[1]) for name in model.tensors if name.startswith("blk.")}


def test_whole_model_has_all_layers(convert):
    model = convert(whole() | HEAD)
    assert (layers(model), model.metadata[KEY]) == ({0, 1, 2}, 1)
    assert model.metadata["glm4moe.block_count"] == 3


def test_model_without_prediction_is_that_of_a_checkpoint_without_such_layers(convert):
    model = convert(whole() | HEAD, mtp=False)
    assert layers(model) == {0, 1}
    assert KEY not in model.metadata
    assert model.metadata["glm4moe.block_count"] == 2


def test_prediction_alone_keeps_the_keys_and_the_shared_tensors(convert):
    model = convert(whole() | HEAD, mtp=True)
    assert layers(model) == {2}
    assert {"token_embd.weight", "output_norm.weight"} < set(model.tensors)
    assert model.metadata[KEY] == 1
    assert model.metadata["glm4moe.block_count"] == 3


def test_checkpoint_without_such_layers_has_no_prediction(convert):
    with pytest.raises(CheckpointError, match="no layers that predict further tokens"):
        convert(whole(), mtp=True)


APART = PREDICTING.replace(
    "uneven",
    """convert_if = "only_prediction"
uneven""",
).replace("nonzero(block_count - num_hidden_layers)", "num_nextn_predict_layers")
for number, name in ((1, "e"), (2, "h")):
    target = f"blk.{{i}}.nextn.eh_proj.weight part {number} of 2 || side_by_side(2)"
    APART += f'"model.layers.{{i}}.{name}_proj.weight" = "{target}"\n'


def test_file_of_its_own_serves_the_prediction_alone(convert, tmp_path):
    parts = {f"model.layers.2.{name}_proj.weight": numbers(8, 8) for name in "eh"}
    (tmp_path / "arch").mkdir()
    (tmp_path / "arch" / "apart.toml").write_text(APART)
    model = convert(whole() | layer(2) | parts, mtp=True)
    joined = model.tensors["blk.2.nextn.eh_proj.weight"].numpy()
    assert np.array_equal(joined, np.hstack(list(parts.values())).astype(np.float16))


def test_class_without_dspark_is_named(convert):
    with pytest.raises(CheckpointError, match="PlainForCausalLM contains no DSpark draft model"):
        convert(whole(), dspark=True)


@pytest.mark.parametrize("mtp", [True, False])
def test_architecture_without_such_layers_is_named(convert, mtp):
    with pytest.raises(CheckpointError, match="the architecture llama has no layers that predict"):
        convert(whole(), arch=ARCH, mtp=mtp)
