"""What names and shapes say of an image or video model: parts, channels, and who reads it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import diffusion_checkpoints
import ggufkit
import small_llama
from ggufkit.diffusion.pipeline_facts import pipeline_facts
from ggufkit.inspection.summary import describe, summarize
from shell import ggufkit as run

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "oracle"))
import diffusers_names

RECORDED = diffusers_names.recorded()
ALL = ["ComfyUI-GGUF", "stable-diffusion.cpp", "diffusers"]
# `in_channels` in the configuration of diffusers' class; of packed latents, a quarter of it.
CHANNELS = {
    "ChromaTransformer2DModel": 64 // 4,
    "CosmosTransformer3DModel": 16 + 1,  # and the mask of padding
    "Flux2Transformer2DModel": 128 // 4,
    "FluxTransformer2DModel": 64 // 4,
    "HunyuanVideoTransformer3DModel": 16,
    "Krea2Transformer2DModel": 64 // 4,
    "Lumina2Transformer2DModel": 16,
    "SD3Transformer2DModel": 16,
    "UNet2DConditionModel": 4,
    "UNet2DConditionModel xl": 4,
    "WanAnimateTransformer3DModel": 36,
    "WanTransformer3DModel": 16,
    "ZImageTransformer2DModel": 16,
}


@pytest.mark.parametrize("case", CHANNELS)
def test_channels_are_those_of_diffusers_configuration(case, tmp_path):
    tensors = diffusers_names.arrays(RECORDED[case]["shapes"])
    published = diffusers_names.published(tmp_path / "a.safetensors", tensors)
    shapes = {name: array.shape for name, array in published.items()}
    assert pipeline_facts("", shapes, (), ()).channels == CHANNELS[case]


def test_learned_positions_say_the_largest_picture():
    shapes = {
        "joint_blocks.0.x_block.attn.qkv.weight": (4608, 1536),
        "pos_embed": (1, 192 * 192, 1536),  # of Stable Diffusion 3 Medium
    }
    assert pipeline_facts("sd3", shapes, (), ()).max_side == 192 * 2 * 8


@pytest.mark.parametrize(
    ("model", "loader", "readers"),
    [
        ("flux", "comfyui", ALL),
        ("wan", "comfyui", ALL),
        ("hidream", "comfyui", ALL[:1]),
        ("sd1", "comfyui", ALL[:1]),  # in rows of 256
        ("sd1", "sd.cpp", ALL[:2]),
    ],
)
def test_a_file_is_read_by_the_programs_that_know_its_form(tmp_path, model, loader, readers):
    source = diffusion_checkpoints.write(model, "F16", tmp_path / "a.safetensors")
    with ggufkit.convert(source, loader=loader) as converted:
        assert summarize(converted).pipeline.readers == readers
        assert describe(converted)["summary"]["pipeline"]["readers"] == readers


def test_types_that_diffusers_lacks_are_found(tmp_path):
    source = diffusion_checkpoints.write("flux", "F16", tmp_path / "a.safetensors")
    with ggufkit.convert(source) as model:
        ternary = model.quantize("TQ1_0")
        assert summarize(ternary).pipeline.readers == ALL[:2]
        assert [finding.rule for finding in ggufkit.check(ternary)] == ["diffusion-type"]


def test_inspect_shows_model_and_parts(tmp_path):
    source = diffusion_checkpoints.write("sd1", "F16", tmp_path / "a.safetensors")
    with ggufkit.convert(source, loader="sd.cpp") as model:
        ggufkit.write(model, tmp_path / "sd1.gguf")
    done = run("inspect", tmp_path / "sd1.gguf", "--no-tensors")
    lines = dict(line.split(maxsplit=1) for line in done.out.splitlines() if "  " in line)
    assert lines["model"] == "Stable Diffusion 1.x"
    assert lines["parts"] == "model, vae"
    assert "stable-diffusion.cpp" in done.out


def test_other_models_have_no_such_facts(tmp_path):
    ggufkit.save(tmp_path / "a.gguf", small_llama.tensors(), small_llama.keys())
    with ggufkit.open(tmp_path / "a.gguf") as model:
        assert summarize(model).pipeline is None
