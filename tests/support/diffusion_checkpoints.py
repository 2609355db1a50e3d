"""Tiny image and video models with the names of real ones, from a seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tensors_file import safetensors_bytes

WIDTH = 256
ShapeTable = dict[str, tuple[int, ...]]


def _linear(name: str, rows: int = WIDTH, columns: int = WIDTH) -> ShapeTable:
    return {f"{name}.weight": (rows, columns), f"{name}.bias": (rows,)}


def _matrices(prefix: str, *names: str, shape: tuple[int, ...] = (WIDTH, WIDTH)) -> ShapeTable:
    return {f"{prefix}.{name}.weight": shape for name in names}


def _flux() -> ShapeTable:
    shapes = _linear("img_in") | _linear("txt_in") | _linear("time_in.in_layer")
    shapes |= _linear("vector_in.in_layer") | _linear("guidance_in.in_layer")
    shapes |= _linear("final_layer.linear", 64)
    for i in range(2):
        for stream in ("img", "txt"):
            block = f"double_blocks.{i}.{stream}"
            shapes |= _linear(f"{block}_mod.lin", 6 * WIDTH) | _linear(f"{block}_attn.proj")
            shapes |= _linear(f"{block}_attn.qkv", 3 * WIDTH)
            shapes |= _linear(f"{block}_mlp.2", WIDTH, 2 * WIDTH)
            shapes[f"{block}_attn.norm.query_norm.scale"] = (64,)
        shapes |= _linear(f"single_blocks.{i}.linear1", 7 * WIDTH)
    return shapes


def _sd3() -> ShapeTable:
    shapes: ShapeTable = {"pos_embed": (1, 16, WIDTH)}
    shapes |= _linear("x_embedder.proj", WIDTH, 64) | _linear("context_embedder")
    for i in range(3):
        for stream in ("x_block", "context_block"):
            block = f"joint_blocks.{i}.{stream}"
            shapes |= _linear(f"{block}.attn.qkv", 3 * WIDTH) | _linear(f"{block}.mlp.fc2")
    return shapes


def _aura() -> ShapeTable:
    shapes: ShapeTable = {"positional_encoding": (1, 16, WIDTH), "register_tokens": (1, 8, WIDTH)}
    shapes |= {"modF.1.weight": (512, WIDTH), "cond_seq_linear.weight": (WIDTH, WIDTH)}
    for i in range(5):
        shapes |= _matrices(f"double_layers.{i}.attn", "w1q", "w1v", "w2v")
        shapes[f"double_layers.{i}.modX.1.weight"] = (512, WIDTH)
    return shapes


def _hidream() -> ShapeTable:
    shapes: ShapeTable = {"caption_projection.0.linear.weight": (WIDTH, WIDTH)}
    for i in range(2):
        block = f"double_stream_blocks.{i}.block"
        shapes |= _linear(f"{block}.attn1.to_q") | _linear(f"{block}.attn1.to_v")
        shapes[f"{block}.ff_i.gate.weight"] = (8, WIDTH)
        shapes |= _matrices(f"{block}.ff_i.experts.0", "w1", "w2", "w3")
        shapes |= _matrices(f"{block}.ff_i.shared_experts", "w1", "w2", "w3")
    return shapes


def _cosmos() -> ShapeTable:
    shapes: ShapeTable = {"x_embedder.proj.1.weight": (WIDTH, 68), "pos_embedder.dim": (2000,)}
    shapes |= {"blocks.0.attn._extra_state": (4,), "accum_x": (3,)}
    for i in range(2):
        shapes |= _matrices(f"blocks.{i}.self_attn", "q_proj", "v_proj")
        shapes[f"blocks.{i}.mlp.layer1.weight"] = (2 * WIDTH, WIDTH)
        shapes[f"blocks.{i}.mlp.layer2.weight"] = (WIDTH, 2 * WIDTH)
        shapes[f"blocks.{i}.adaln_modulation_cross_attn.1.weight"] = (64, WIDTH)
        shapes[f"blocks.{i}.adaln_modulation_mlp.2.weight"] = (WIDTH, 64)
    return {f"net.{name}": shape for name, shape in shapes.items()}


def _hyvid() -> ShapeTable:
    shapes: ShapeTable = {"img_in.proj.weight": (WIDTH, 16, 1, 2, 2), "img_in.proj.bias": (WIDTH,)}
    shapes |= _linear("txt_in.individual_token_refiner.blocks.1.self_attn_qkv", 3 * WIDTH)
    for i in range(2):
        block = f"double_blocks.{i}.img"
        shapes |= _linear(f"{block}_attn_qkv", 3 * WIDTH) | _linear(f"{block}_attn_proj")
    return shapes


def _wan() -> ShapeTable:
    shapes: ShapeTable = {"patch_embedding.weight": (WIDTH, 16, 1, 2, 2)}
    shapes |= {"patch_embedding.bias": (WIDTH,), "head.modulation": (1, 2, WIDTH)}
    shapes |= {"img_emb.emb_pos": (1, 10, WIDTH)} | _linear("text_embedding.2")
    for i in range(5):
        block = f"blocks.{i}"
        shapes |= {
            f"{block}.modulation": (1, 6, WIDTH),
            f"{block}.self_attn.norm_q.weight": (WIDTH,),
        }
        shapes |= _linear(f"{block}.self_attn.q") | _linear(f"{block}.cross_attn.v")
        shapes |= _linear(f"{block}.ffn.2", WIDTH, 2 * WIDTH + 32)
    return shapes


def _ltxv() -> ShapeTable:
    shapes = _linear("adaln_single.emb.timestep_embedder.linear_2")
    shapes |= _linear("caption_projection.linear_2") | {"scale_shift_table": (2, WIDTH)}
    for i in range(28):
        block = f"transformer_blocks.{i}"
        shapes |= {f"{block}.scale_shift_table": (6, WIDTH)}
        shapes |= _matrices(block, "attn1.to_v", "ff.net.2", shape=(32, WIDTH))
    return shapes


def _unet(*convolutions: str) -> ShapeTable:
    shapes: ShapeTable = dict.fromkeys(convolutions, (32, 32, 3, 3))
    block = "input_blocks.4.1.transformer_blocks.0"
    shapes |= _matrices(f"{block}.attn1", "to_q", "to_v", shape=(320, 320))
    return shapes | _linear(f"{block}.ff.net.2", 320, 1280) | {f"{block}.norm1.weight": (320,)}


def _sdxl() -> ShapeTable:
    names = ("input_blocks.3.0.op", "input_blocks.6.0.op", "output_blocks.2.2.conv")
    shapes = _unet(*(f"{name}.weight" for name in (*names, "output_blocks.5.2.conv")))
    return shapes | {"label_emb.0.0.weight": (WIDTH, WIDTH), "out.2.weight": (4, 320, 3, 3)}


def _sd1() -> ShapeTable:
    names = ("input_blocks.3.0.op", "input_blocks.6.0.op", "input_blocks.9.0.op")
    names += ("output_blocks.2.1.conv", "output_blocks.5.2.conv", "output_blocks.8.2.conv")
    shapes = _unet(*(f"{name}.weight" for name in names))
    inside = {f"model.diffusion_model.{name}": shape for name, shape in shapes.items()}
    return inside | {"first_stage_model.encoder.weight": (WIDTH, WIDTH)}


def _lumina2() -> ShapeTable:
    shapes = _linear("cap_embedder.1") | {"x_embedder.weight": (WIDTH, 64)}
    shapes |= {"context_refiner.0.attention.qkv.weight": (3 * WIDTH, WIDTH)}
    shapes |= {"one_row.weight": (1, WIDTH), "stack.weight": (1, WIDTH, WIDTH)}
    for i in range(3):
        shapes |= _matrices(f"layers.{i}", "attention.qkv", "attention.out")
        shapes[f"layers.{i}.feed_forward.w2.weight"] = (WIDTH, 2 * WIDTH + 160)
    return shapes


MODELS = {
    "flux": _flux, "sd3": _sd3, "aura": _aura, "hidream": _hidream, "cosmos": _cosmos,
    "hyvid": _hyvid, "wan": _wan, "ltxv": _ltxv, "sdxl": _sdxl, "sd1": _sd1, "lumina2": _lumina2,
}  # fmt: skip
KINDS = ("BF16", "F16", "F32")


def arrays(model: str, kind: str) -> dict[str, np.ndarray]:
    """Return the tensors of a model in one type (uint16 is BF16), in an order from the seed."""
    shapes = MODELS[model]()
    random = np.random.RandomState([*model.encode(), KINDS.index(kind)])
    names = list(shapes)
    random.shuffle(names)
    tensors = {}
    for name in names:
        # Sums of integers are the same numbers on every machine.
        numbers = random.randint(-(1 << 16), 1 << 16, (4, *shapes[name])).sum(axis=0)
        floats = (numbers / np.float64(1 << 20)).astype(np.float32)
        tensors[name] = (
            (floats.view(np.uint32) >> 16).astype(np.uint16)
            if kind == "BF16"
            else floats.astype(np.float16 if kind == "F16" else np.float32)
        )
    return tensors


def write(model: str, kind: str, path: Path) -> Path:
    """Write a model as one safetensors file."""
    path.write_bytes(safetensors_bytes(arrays(model, kind)))
    return path
