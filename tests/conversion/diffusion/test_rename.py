"""Models in diffusers' names get the publisher's names, which diffusers' own converter proved."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import ggufkit
from ggufkit.diffusion.architecture import architectures
from ggufkit.errors import CheckpointError
from platforms import posix
from tensors_file import safetensors_bytes, write_checkpoint

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "oracle"))
import diffusers_names

RECORDED = diffusers_names.recorded()
FLUX = "FluxTransformer2DModel"


def flux(**changes: np.ndarray | None) -> dict[str, np.ndarray]:
    """Return a tiny FLUX in diffusers' names, with other tensors."""
    tensors = diffusers_names.arrays(RECORDED[FLUX]["shapes"]) | changes
    return {name: array for name, array in tensors.items() if array is not None}


def test_every_class_is_recorded():
    assert [*RECORDED] == [*diffusers_names.CLASSES], "tests/oracle/diffusers_names.py records them"


@pytest.mark.parametrize("case", RECORDED)
def test_a_class_has_the_tensors_that_diffusers_translates_back(case, tmp_path):
    tensors = diffusers_names.arrays(RECORDED[case]["shapes"])
    published = diffusers_names.published(tmp_path / "model.safetensors", tensors)
    assert diffusers_names.digest(published) == RECORDED[case]["digest"]


@pytest.mark.parametrize("case", RECORDED)
def test_export_gives_a_class_its_names_of_diffusers_back(case, tmp_path):
    tensors = diffusers_names.arrays(RECORDED[case]["shapes"])
    if case.startswith("LTX2"):  # it is recognized by its number of layers
        tensors["transformer_blocks.47.scale_shift_table"] = np.ones((6, 16), np.float32)
    source = tmp_path / "model.safetensors"
    source.write_bytes(safetensors_bytes(tensors))
    known = [architecture for architecture in architectures().values() if architecture.diffusers]
    arch = max(known, key=lambda architecture: architecture.diffusers.matched(tensors)).stem
    with ggufkit.convert(source, outtype="f32", arch=arch) as model:
        ggufkit.write(model, tmp_path / "model.gguf")
    ggufkit.export(tmp_path / "model.gguf", tmp_path / "out", names="diffusers")
    with ggufkit.safetensors.load(tmp_path / "out/diffusion_pytorch_model.safetensors") as back:
        assert {*back.tensors} == {*tensors}
        for name, tensor in back.tensors.items():
            assert tensor.shape == tensors[name].shape, name
            assert np.array_equal(tensor.numpy(), tensors[name]), name


@pytest.mark.parametrize(
    ("names", "general", "message"),
    [("diffusers", "flux", "other tensors than in diffusers"), ("diffusers", "pixart", "PixArt")],
)
def test_names_that_diffusers_does_not_have_are_refused(tmp_path, names, general, message):
    keys = {"general.architecture": general}
    model = ggufkit.model({"unknown.weight": np.ones((4, 8), np.float32)}, keys)
    with pytest.raises(CheckpointError, match=message):
        ggufkit.export(model, tmp_path / "out", names=names)
    assert not (tmp_path / "out").exists()


def test_a_language_model_has_no_other_names(tmp_path):
    keys = {"general.architecture": "llama"}
    model = ggufkit.model({"token_embd.weight": np.ones((4, 8), np.float32)}, keys)
    with pytest.raises(ValueError, match="cannot be exported with the names 'diffusers'"):
        ggufkit.export(model, tmp_path / "out", names="diffusers")


def test_a_folder_of_diffusers_becomes_the_publishers_model(tmp_path):
    tensors = {name: array % 999 for name, array in flux().items()}
    halves = [dict([*tensors.items()][i::2]) for i in range(2)]
    stem = "diffusion_pytorch_model-0000{}-of-00002"
    files = {stem.format(i + 1): half for i, half in enumerate(halves)}
    write_checkpoint(tmp_path / "transformer", {"_class_name": FLUX}, **files)
    (tmp_path / "model_index.json").write_text("{}")
    with ggufkit.convert(tmp_path, outtype="f32") as model:
        assert model.architecture == "flux"
        qkv = model["double_blocks.1.img_attn.qkv.weight"].numpy()
        names = (f"transformer_blocks.1.attn.to_{part}.weight" for part in "qkv")
        assert np.array_equal(qkv, np.concatenate([tensors[name] for name in names]))
        final = model["final_layer.adaLN_modulation.1.bias"].numpy()
        assert np.array_equal(final, np.roll(tensors["norm_out.linear.bias"], 16))


def test_each_of_two_experts_is_a_part(tmp_path):
    pipeline = tmp_path / "Wan2.2"  # transformer is for much noise, transformer_2 for little
    tensors = diffusers_names.arrays(RECORDED["WanTransformer3DModel"]["shapes"])
    config = {"_class_name": "WanTransformer3DModel"}
    for number, folder in enumerate(("transformer", "transformer_2")):
        expert = {name: array + number for name, array in tensors.items()}
        stem = "diffusion_pytorch_model"
        write_checkpoint(pipeline / folder, config, **{stem: expert})
    (pipeline / "model_index.json").write_text("{}")
    modulations = []
    for part in (None, "transformer_2"):
        with ggufkit.convert(pipeline, part=part) as model:
            assert model.architecture == "wan"
            modulations.append(model["head.modulation"].numpy())
    assert np.array_equal(modulations[0] + 1, modulations[1])


def test_a_missing_shard_is_an_error(tmp_path):
    files = {"diffusion_pytorch_model-00001-of-00002": flux()}
    write_checkpoint(tmp_path / "transformer", {"_class_name": FLUX}, **files)
    with pytest.raises(CheckpointError, match="has 1 of the 2 files"):
        ggufkit.convert(tmp_path / "transformer")
    (tmp_path / "transformer" / f"{next(iter(files))}.safetensors").unlink()
    with pytest.raises(CheckpointError, match="has 0 of the 1 files"):
        ggufkit.convert(tmp_path / "transformer")


def test_a_variant_is_read_only_if_the_folder_has_no_other_file(tmp_path):
    variant = {"double_blocks.0.img_attn.proj.weight": np.ones((8, 8), np.float32)}
    files = {"diffusion_pytorch_model.fp16": variant}
    write_checkpoint(tmp_path, {"_class_name": FLUX}, **files)
    with ggufkit.convert(tmp_path) as model:
        assert [*model.tensors] == [*variant]
    write_checkpoint(tmp_path, {"_class_name": FLUX}, diffusion_pytorch_model=flux())
    with ggufkit.convert(tmp_path, outtype="f32") as model:
        assert len(model.tensors) > 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"something.weight": np.ones(3, np.float32)}, "'something.weight' is unknown"),
        ({"n" * 2000: np.ones(3, np.float32)}, "is unknown to this model"),
        ({"transformer_blocks.1.attn.to_k.bias": None}, "1.img_attn.qkv.bias lacks a part"),
        ({"transformer_blocks.01.norm1.linear.bias": np.ones(3, np.float32)}, "is a second"),
    ],
)
def test_tensors_that_the_model_does_not_have_are_refused(tmp_path, changes, message):
    path = tmp_path / "flux.safetensors"
    path.write_bytes(safetensors_bytes(flux(**changes)))
    with pytest.raises(CheckpointError) as error:
        ggufkit.convert(path)
    assert message in "\n".join(error.value.problems)


def test_halves_that_cannot_change_places_are_refused(tmp_path):
    path = tmp_path / "flux.safetensors"
    odd = {"norm_out.linear.bias": np.ones(3, np.float32)}
    path.write_bytes(safetensors_bytes(flux(**odd)))
    with pytest.raises(CheckpointError, match="has no halves"):
        ggufkit.convert(path)


@posix
def test_a_shard_is_not_a_link_out_of_the_folder(tmp_path):
    write_checkpoint(tmp_path / "a", {"_class_name": FLUX}, diffusion_pytorch_model=flux())
    folder = write_checkpoint(tmp_path / "b", {"_class_name": FLUX})
    name = "diffusion_pytorch_model.safetensors"
    (folder / name).symlink_to(tmp_path / "a" / name)
    with pytest.raises(CheckpointError, match="leads out of the folder"):
        ggufkit.convert(folder)
    with ggufkit.convert(folder, outtype="f32", follow_links=True) as model:
        assert model.architecture == "flux"
