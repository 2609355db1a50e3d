"""Checkpoints exported and converted again."""

from __future__ import annotations

import contextlib
import json

import numpy as np
import pytest

import ggufkit
from ggufkit.conversion.checkpoint.folder import open_checkpoint
from ggufkit.conversion.export import plan_export
from ggufkit.errors import CheckpointError, GGUFError, OutputError, TensorTypeError
from plain_checkpoint import ARCH, CONFIG, layer, numbers, whole
from tensors_file import write_checkpoint


@pytest.fixture
def arch(tmp_path):
    folder = tmp_path / "arch"
    folder.mkdir()
    text = ARCH.replace('"llama"\nclasses', '"plain"\nclasses')
    text += """
[export]
architectures = "'PlainForCausalLM'"
model_type = "'llama'"
"""
    (folder / "plain.toml").write_text(text)
    return [folder]


@pytest.fixture
def checkpoint(tmp_path):
    return write_checkpoint(tmp_path / "tiny", CONFIG, model=whole())


@pytest.fixture
def converted(checkpoint, arch, tmp_path):
    def convert_folder(folder=checkpoint, name="made.gguf", **options):
        with ggufkit.convert(folder, arch_path=arch, **options) as model:
            return ggufkit.write(model, tmp_path / name)[0]

    return convert_folder


@pytest.fixture
def exported(arch, tmp_path):
    def export_model(path, name="back/tiny", **options):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        with ggufkit.open(path) as model:
            ggufkit.export(model, tmp_path / name, arch_path=arch, **options)
        return tmp_path / name

    return export_model


def test_converting_an_exported_model_gives_the_same_file(converted, exported):
    path = converted()
    again = converted(exported(path), "again.gguf")
    assert again.read_bytes() == path.read_bytes()


def test_matrices_are_bit_identical_after_the_round_trip(checkpoint, converted, exported):
    before, after = (open_checkpoint(f) for f in (checkpoint, exported(converted())))
    assert list(before.tensors) == list(after.tensors)
    matrices = [name for name, tensor in before.tensors.items() if len(tensor.shape) > 1]
    for name in matrices:
        assert np.array_equal(before.tensors[name].raw(), after.tensors[name].raw()), name


def test_round_trip_restores_the_configuration(converted, exported):
    config = json.loads((exported(converted()) / "config.json").read_text())
    assert config["architectures"] == CONFIG["architectures"]
    assert {k: config[k] for k in CONFIG} == CONFIG
    assert config["torch_dtype"] == "float16"
    assert config["tie_word_embeddings"] is True


def test_shards_stay_within_their_limit(converted, exported):
    folder = exported(converted(), shard_size=600)
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    shards = sorted(set(index["weight_map"].values()))
    assert shards == sorted(path.name for path in folder.glob("*.safetensors"))
    assert len(shards) > 2
    assert index["metadata"]["total_size"] == sum(
        tensor.nbytes for tensor in open_checkpoint(folder).tensors.values()
    )


def test_round_trip_restores_the_order_of_several_files(converted, exported, tmp_path):
    ends = {name: array for name, array in whole().items() if "layers" not in name}
    folder = write_checkpoint(
        tmp_path / "two", CONFIG, **{"model-1": layer(1), "model-2": ends | layer(0)}
    )
    path = converted(folder)
    again = converted(exported(path, "back/two"), "again.gguf")
    assert again.read_bytes() == path.read_bytes()


@pytest.mark.parametrize(("dtype", "kind"), [("auto", "BF16"), ("f16", "F16"), ("f32", "F32")])
def test_export_decodes_quantized_tensors(converted, exported, tmp_path, dtype, kind):
    ggufkit.save(tmp_path / "q.gguf", *_quantized(converted()))
    tensors = open_checkpoint(exported(tmp_path / "q.gguf", dtype=dtype)).tensors
    assert tensors["model.layers.0.mlp.up_proj.weight"].type.name == kind


def _quantized(path):
    """Return arrays and metadata of a model with wider rows, one of them quantized."""
    model = ggufkit.open(path)
    arrays = {name: tensor.numpy() for name, tensor in model.tensors.items()}
    arrays["blk.0.ffn_up.weight"] = (numbers(12, 32, dtype=np.float32), "Q8_0")
    return arrays, dict(model.metadata)


def test_notes_name_the_keys_that_a_round_trip_loses(converted, exported):
    path = converted()
    with ggufkit.open(path) as model:
        odd = ggufkit.edit(model, set={"plain.odd": "uint32:7"})
        ggufkit.write(odd, path.with_name("odd.gguf"))
    notes = []
    exported(path.with_name("odd.gguf"), say=notes.append)
    assert any("plain.odd" in note for note in notes)
    assert any("no vocabulary" in note for note in notes)


def test_lists_all_tensors_that_cannot_be_exported_at_once(converted, exported, tmp_path):
    model = ggufkit.open(converted())
    arrays = {name: tensor.numpy() for name, tensor in model.tensors.items()}
    extra = {"blk.0.odd.weight": numbers(3, 3), "more.weight": numbers(3)}
    ggufkit.save(tmp_path / "odd.gguf", arrays | extra, dict(model.metadata))
    with pytest.raises(CheckpointError) as caught:
        exported(tmp_path / "odd.gguf", "odd")
    assert len(caught.value.problems) == 2
    assert not (tmp_path / "odd").exists()


def test_does_not_write_into_a_folder_that_is_not_empty(converted, exported, checkpoint):
    before = sorted(path.name for path in checkpoint.iterdir())
    with pytest.raises(OutputError, match="not empty"):
        exported(converted(), checkpoint.name)
    assert sorted(path.name for path in checkpoint.iterdir()) == before


def test_refuses_an_unknown_type_and_an_unknown_architecture(converted, exported, tmp_path):
    with pytest.raises(TensorTypeError, match="q4"):
        exported(converted(), dtype="q4")
    ggufkit.save(tmp_path / "new.gguf", {}, {"general.architecture": "new"})
    with pytest.raises(CheckpointError, match="'new' is unknown"):
        exported(tmp_path / "new.gguf", "new")


def test_removes_what_a_killed_process_left(converted, exported, tmp_path):
    (tmp_path / "back" / ".tiny.ggufkit-folder" / "deep").mkdir(parents=True)
    folder = exported(converted())
    assert sorted(path.name for path in folder.parent.iterdir()) == ["tiny"]
    assert not (folder / "deep").exists()


ODD = ["text", [1, 2], float("nan"), 2**63, True, 0]


@pytest.mark.parametrize("value", ODD, ids=repr)
def test_any_value_of_any_key_is_exported_or_gives_a_typed_error(converted, arch, value):
    model = ggufkit.open(converted())
    arrays = {name: tensor.numpy() for name, tensor in model.tensors.items()}
    for key in [*model.metadata, "tokenizer.ggml.bos_token_id", "plain.pooling_type"]:
        if key.startswith(("plain.", "tokenizer.")):
            path = arch[0].parent / "odd.gguf"
            ggufkit.save(path, arrays, {**model.metadata, key: value})
            with ggufkit.open(path) as odd, contextlib.suppress(GGUFError):
                plan_export(odd, arch_path=arch)


@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (1 << 20, 0, 4)])
def test_odd_shapes_are_exported_or_give_a_typed_error(converted, arch, shape):
    model = ggufkit.open(converted())
    arrays = {name: tensor.numpy() for name, tensor in model.tensors.items()}
    names = ["blk.0.attn_q.weight", "blk.0.ffn_gate_exps.weight", "rope_freqs.weight"]
    for name in names:
        path = arch[0].parent / "odd.gguf"
        odd_arrays = arrays | {name: np.zeros(shape, np.float32)}
        ggufkit.save(path, odd_arrays, dict(model.metadata))
        with contextlib.suppress(GGUFError), ggufkit.open(path) as odd:
            plan_export(odd, arch_path=arch)
