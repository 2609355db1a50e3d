"""Models of published sizes without weights: sparse files, of which only headers are read."""

from __future__ import annotations

import json
import math
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest

import ggufkit
from diffusion_checkpoints import ShapeTable
from ggufkit.inspection.summary import summarize
from ggufkit.output.layout import layout
from ggufkit.quantization.quantize import decide
from shell import done


def linear(name: str, rows: int, columns: int) -> ShapeTable:
    return {f"{name}.weight": (rows, columns), f"{name}.bias": (rows,)}


def flux(width: int = 3072) -> ShapeTable:
    """FLUX.1-dev."""
    shapes = linear("img_in", width, 64) | linear("txt_in", width, 4096)
    for name, columns in (("time_in", 256), ("guidance_in", 256), ("vector_in", 768)):
        shapes |= linear(f"{name}.in_layer", width, columns)
        shapes |= linear(f"{name}.out_layer", width, width)
    for i in range(19):
        for stream in ("img", "txt"):
            block = f"double_blocks.{i}.{stream}"
            shapes |= linear(f"{block}_mod.lin", 6 * width, width)
            shapes |= linear(f"{block}_attn.qkv", 3 * width, width)
            shapes |= linear(f"{block}_attn.proj", width, width)
            shapes |= linear(f"{block}_mlp.0", 4 * width, width)
            shapes |= linear(f"{block}_mlp.2", width, 4 * width)
            for part in ("query", "key"):
                shapes[f"{block}_attn.norm.{part}_norm.scale"] = (128,)
    for i in range(38):
        block = f"single_blocks.{i}"
        shapes |= linear(f"{block}.linear1", 7 * width, width)
        shapes |= linear(f"{block}.linear2", width, 5 * width)
        shapes |= linear(f"{block}.modulation.lin", 3 * width, width)
        for part in ("query", "key"):
            shapes[f"{block}.norm.{part}_norm.scale"] = (128,)
    shapes |= linear("final_layer.adaLN_modulation.1", 2 * width, width)
    return shapes | linear("final_layer.linear", 64, width)


def wan(width: int = 5120, hidden: int = 13824) -> ShapeTable:
    """Wan 2.1 T2V 14B; each of the two experts of Wan 2.2 T2V has the same tensors."""
    shapes = {"patch_embedding.weight": (width, 16, 1, 2, 2), "patch_embedding.bias": (width,)}
    shapes |= linear("text_embedding.0", width, 4096) | linear("text_embedding.2", width, width)
    shapes |= linear("time_embedding.0", width, 256) | linear("time_embedding.2", width, width)
    shapes |= linear("time_projection.1", 6 * width, width)
    for i in range(40):
        block = f"blocks.{i}"
        for attention in ("self_attn", "cross_attn"):
            for part in "qkvo":
                shapes |= linear(f"{block}.{attention}.{part}", width, width)
            for part in "qk":
                shapes[f"{block}.{attention}.norm_{part}.weight"] = (width,)
        shapes |= linear(f"{block}.ffn.0", hidden, width) | linear(f"{block}.ffn.2", width, hidden)
        shapes |= {f"{block}.norm3.weight": (width,), f"{block}.norm3.bias": (width,)}
        shapes[f"{block}.modulation"] = (1, 6, width)
    return shapes | linear("head.head", 64, width) | {"head.modulation": (1, 2, width)}


def qwen_image(width: int = 3072) -> ShapeTable:
    """Qwen-Image."""
    shapes = linear("img_in", width, 64) | linear("txt_in", width, 3584)
    shapes |= {"txt_norm.weight": (3584,)} | linear("proj_out", 64, width)
    shapes |= linear("norm_out.linear", 2 * width, width)
    shapes |= linear("time_text_embed.timestep_embedder.linear_1", width, 256)
    shapes |= linear("time_text_embed.timestep_embedder.linear_2", width, width)
    for i in range(60):
        block = f"transformer_blocks.{i}"
        for part in ("to_q", "to_k", "to_v", "to_out.0", "to_add_out"):
            shapes |= linear(f"{block}.attn.{part}", width, width)
        for part in ("add_q_proj", "add_k_proj", "add_v_proj"):
            shapes |= linear(f"{block}.attn.{part}", width, width)
        for part in ("norm_q", "norm_k", "norm_added_q", "norm_added_k"):
            shapes[f"{block}.attn.{part}.weight"] = (128,)
        for stream in ("img", "txt"):
            shapes |= linear(f"{block}.{stream}_mod.1", 6 * width, width)
            shapes |= linear(f"{block}.{stream}_mlp.net.0.proj", 4 * width, width)
            shapes |= linear(f"{block}.{stream}_mlp.net.2", width, 4 * width)
    return shapes


def ideogram4(width: int = 4608, hidden: int = 12288) -> ShapeTable:
    """Ideogram 4."""
    shapes = linear("input_proj", width, 128) | linear("llm_cond_proj", width, 53248)
    shapes |= {"llm_cond_norm.weight": (53248,), "embed_image_indicator.weight": (2, width)}
    shapes |= linear("t_embedding.mlp_in", width, width)
    shapes |= linear("t_embedding.mlp_out", width, width) | linear("adaln_proj", 512, width)
    for i in range(34):
        block = f"layers.{i}"
        shapes |= linear(f"{block}.adaln_modulation", 4 * width, 512)
        shapes[f"{block}.attention.qkv.weight"] = (3 * width, width)
        shapes[f"{block}.attention.o.weight"] = (width, width)
        for part in ("w1", "w3"):
            shapes[f"{block}.feed_forward.{part}.weight"] = (hidden, width)
        shapes[f"{block}.feed_forward.w2.weight"] = (width, hidden)
        for part in ("attention.norm_q", "attention.norm_k"):
            shapes[f"{block}.{part}.weight"] = (256,)
        for part in ("attention_norm1", "ffn_norm1", "attention_norm2", "ffn_norm2"):
            shapes[f"{block}.{part}.weight"] = (width,)
    shapes |= linear("final_layer.adaln_modulation", width, 512)
    return shapes | linear("final_layer.linear", 128, width)


# Tensors and parameters as published, and sizes of published files in GB.
MODELS = {
    "flux": (flux, 780, 11_901_408_320, {"Q4_K_S": 6.81, "Q5_K_S": 8.29}),
    "wan": (wan, 1095, 14_288_491_584, {}),
    "qwen_image": (qwen_image, 1933, 20_430_401_088, {}),
}


def sparse(path: Path, shapes: ShapeTable) -> Path:
    """Write a safetensors file of BF16 tensors whose data is a hole; return its path."""
    header, end = {}, 0
    for name, shape in shapes.items():
        start, end = end, end + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
    return path


@pytest.mark.parametrize("model", MODELS)
def test_a_dry_run_reads_no_weights(tmp_path, model):
    shapes, tensors, parameters, published = MODELS[model]
    source = sparse(tmp_path / f"{model}.safetensors", shapes())
    with ggufkit.convert(source) as converted:
        assert len(converted.tensors) == tensors
        assert converted.parameters == parameters
        planned = ggufkit.plan(converted, ["Q8_0", "Q4_K_S", "Q5_K_S"])
        assert ggufkit.estimate(converted).weights == converted.nbytes
    for plan in planned:
        assert plan.fallbacks == 0
        if plan.recipe in published:  # files of 2024 kept a few small tensors in other types
            assert plan.nbytes / 1e9 == pytest.approx(published[plan.recipe], rel=0.003)
    options = ("--quantize", "Q8_0", "--dry-run", "--json")
    (output,) = done("convert", source, tmp_path / "out.gguf", *options).json()
    assert 0 < planned[0].nbytes - output["nbytes"] < 1 << 20  # the header
    assert not (tmp_path / "out.gguf").exists()


@pytest.mark.parametrize("loader", ["comfyui", "sd.cpp"])
def test_memory_of_a_dry_run_is_bounded(tmp_path, loader):
    source = sparse(tmp_path / "flux.safetensors", flux())
    tracemalloc.start()
    try:
        with ggufkit.convert(source, loader=loader) as model:
            layout(model.quantize("Q4_K"), "out.gguf")
            assert ggufkit.estimate(model).total == model.nbytes
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_ideogram_4_has_its_published_matrices_and_quantizes_its_layers(tmp_path):
    shapes = ideogram4()
    matrices = Counter(shape for shape in shapes.values() if len(shape) == 2)
    assert matrices == {
        (4608, 4608): 36, (12288, 4608): 68, (4608, 12288): 34, (13824, 4608): 34,
        (18432, 512): 34, (4608, 128): 1, (4608, 53248): 1, (512, 4608): 1, (4608, 512): 1,
        (128, 4608): 1, (2, 4608): 1,
    }  # fmt: skip
    with ggufkit.convert(sparse(tmp_path / "ideogram.safetensors", shapes)) as model:
        changed = [d for d in decide(model, "Q4_K_M").decisions if d.is_changed]
        assert summarize(model).pipeline.channels == 32
    assert len(changed) == 34 * 6
    assert not any(decision.fell_from for decision in changed)
