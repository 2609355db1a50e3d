"""Files for stable-diffusion.cpp: the bytes of its own converter, whole or one part."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import diffusion_checkpoints
import ggufkit
from ggufkit.errors import CheckpointError
from shell import ggufkit as run
from tensors_file import safetensors_bytes

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "oracle"))
import diffusion_digests
import sd_cpp_digests

RECORDED = sd_cpp_digests.recorded()
PARTS = {
    "model.diffusion_model.double_blocks.0.img_attn.proj.weight": "model",
    "first_stage_model.decoder.conv_in.weight": "vae",
    "text_encoders.clip_l.transformer.text_model.encoder.layers.0.mlp.fc1.weight": "clip_l",
    "text_encoders.qwen25_7b.transformer.model.layers.0.mlp.up_proj.weight": "qwen25_7b",
}


@pytest.mark.parametrize("case", RECORDED)
def test_a_model_becomes_the_same_files_as_with_sd_cli(case, tmp_path):
    source = diffusion_checkpoints.write(*case.split(), tmp_path / "model.safetensors")
    digests = dict(RECORDED[case])
    with ggufkit.convert(source, loader="sd.cpp") as model:
        (plain,) = ggufkit.write(model, tmp_path / "plain.gguf")
    assert diffusion_digests.digest(plain) == digests.pop(sd_cpp_digests.PLAIN)
    with ggufkit.open(plain) as model:  # a file without keys is quantized by the same rules
        for recipe, digest in digests.items():
            (out,) = ggufkit.write(model.quantize(recipe), tmp_path / "out.gguf")
            assert diffusion_digests.digest(out) == digest, recipe


def test_every_model_and_type_is_recorded():
    cases = {f"{m} {k}" for m in diffusion_checkpoints.MODELS for k in diffusion_checkpoints.KINDS}
    assert cases == RECORDED.keys(), "tests/oracle/sd_cpp_digests.py records them"


def whole(path: Path) -> Path:
    """Write a checkpoint of four parts."""
    matrix = np.arange(64 * 256, dtype=np.float16).reshape(64, 256)
    path.write_bytes(safetensors_bytes(dict.fromkeys(PARTS, matrix)))
    return path


def test_the_command_writes_each_part_with_its_own_names(tmp_path):
    source = whole(tmp_path / "sdxl.safetensors")
    for name, part in PARTS.items():
        out = tmp_path / f"{part}.gguf"
        words = ("--for", "sd.cpp", "--part", part, "--quantize", "Q8_0")
        done = run("convert", source, out, *words)
        assert done.code == 0, done.err
        with ggufkit.open(out) as model:
            ((tensor, stored),) = model.tensors.items()
            assert name.endswith(f".{tensor}")
            assert (stored.type.name, dict(model.metadata)) == ("Q8_0", {})


def test_a_part_that_is_not_there_and_one_for_comfyui_are_refused(tmp_path):
    source = whole(tmp_path / "sdxl.safetensors")
    with pytest.raises(CheckpointError, match="has no part 'clip_g'") as error:
        ggufkit.convert(source, loader="sd.cpp", part="clip_g")
    assert error.value.remedy == "Use one of model, vae, clip_l, qwen25_7b"
    with pytest.raises(CheckpointError, match="ComfyUI-GGUF does not read 'vae'"):
        ggufkit.convert(source, part="vae")
    done = run("convert", source, tmp_path / "o.gguf", "--for", "sd.cpp", "--arch", "flux")
    assert done.code == 2


def test_types_that_sd_cpp_cannot_store_are_refused(tmp_path):
    source = tmp_path / "odd.safetensors"
    numbers = {"vae.a": np.ones(4, np.bool_), "vae.b": np.ones(4, np.uint8)}
    source.write_bytes(safetensors_bytes(numbers))
    with pytest.raises(CheckpointError, match=r"'vae\.a' is BOOL, which stable-diffusion\.cpp"):
        ggufkit.convert(source, loader="sd.cpp")


def pipeline(folder: Path) -> Path:
    """Write a pipeline of diffusers: a VAE, CLIP, and T5 with its tokenizer in another folder."""
    for part, config, tensor in (
        ("vae", {"_class_name": "AutoencoderKL"}, "decoder.conv_in.weight"),
        ("text_encoder", {"architectures": ["CLIPTextModel"]}, "text_model.encoder.layers.0.w"),
    ):
        (folder / part).mkdir(parents=True)
        (folder / part / "config.json").write_text(json.dumps(config))
        stem = "diffusion_pytorch_model" if part == "vae" else "model"
        data = safetensors_bytes({tensor: np.ones((4, 32), np.float32)})
        (folder / part / f"{stem}.safetensors").write_bytes(data)
    (folder / "model_index.json").write_text("{}")
    return folder


@pytest.mark.parametrize("part", ["vae", "text_encoder"])
def test_a_part_of_a_pipeline_is_named_by_its_folder(part, tmp_path):
    source = pipeline(tmp_path / "pipeline")
    with ggufkit.convert(source, loader="sd.cpp", part=part, outtype="f16") as model:
        assert {tensor.type.name for tensor in model.tensors.values()} == {"F16"}
    with pytest.raises(CheckpointError, match="VAE" if part == "vae" else "CLIP"):
        ggufkit.convert(source, part=part)
    with pytest.raises(CheckpointError, match="has no part 'unet'") as error:
        ggufkit.convert(source, part="unet")
    assert error.value.remedy == "Use one of text_encoder, vae"
