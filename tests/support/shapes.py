"""Models of the shapes of large ones, as sparse files: headers are true, the data is a hole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import ggufkit
from ggufkit.format.types import tensor_type
from ggufkit.imatrix.matrix import Entry
from ggufkit.models.model import Model, Tensor, Tensors
from ggufkit.output.layout import layout

Shapes = dict[str, tuple[int, ...]]
Models = dict[str, tuple[dict[str, Any], Shapes]]


class Hole:
    """A source that must not be read."""

    byte_order = "little"
    span = None

    def read(self, start: int, stop: int) -> Any:
        raise AssertionError(f"rows {start} to {stop} were read")


def model_of(metadata: dict[str, Any], shapes: Shapes, type: str = "F16") -> Model:
    """Return a model of these shapes, matrices as `type` and vectors as F32, without data."""
    kinds = {name: tensor_type(type if len(shape) > 1 else "F32") for name, shape in shapes.items()}
    tensors = (Tensor.over(name, kinds[name], shape, Hole()) for name, shape in shapes.items())
    return Model(ggufkit.Metadata(metadata), Tensors(tensors))


def write_sparse(model: Model, path: Path) -> Path:
    """Write the headers of `model` and leave a hole for the rest."""
    plan = layout(model, path.name).files[0]
    with path.open("wb") as file:
        file.write(plan.head)
        file.truncate(plan.nbytes)
    return path


def importance(shapes: Shapes, tokens: int = 10) -> dict[str, Entry]:
    """Return importance data of matrices, as llama-imatrix would have computed it."""
    rng = np.random.default_rng(11)
    sums = {
        name: rng.standard_normal((shape[0] if len(shape) > 2 else 1, shape[-1])) ** 2 * 30
        for name, shape in shapes.items()
    }
    return {
        name: Entry(value.astype(np.float32), np.full(len(value), tokens, np.int64))
        for name, value in sums.items()
    }


def hyperparameters(architecture: str, **values: Any) -> dict[str, Any]:
    """Return metadata that llama.cpp's loader asks for, `values` under the architecture's name."""
    common = {
        "context_length": 4096,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "attention.layer_norm_epsilon": 1e-5,
    }
    keys = {f"{architecture}.{key.replace('__', '.')}": v for key, v in (common | values).items()}
    return {"general.architecture": architecture, "tokenizer.ggml.model": "none"} | keys


def dense(
    architecture: str, layers: int, width: int, heads: int, shared: int, hidden: int, **more: Any
) -> tuple[dict[str, Any], Shapes]:
    """Return a model as Llama's: `shared` key heads, `hidden` units of feed forward."""
    vocabulary = more.pop("vocabulary", 32000)
    head = {
        "token_embd.weight": (vocabulary, width),
        "output_norm.weight": (width,),
        "output.weight": (vocabulary, width),
    }
    body = {
        "attn_norm.weight": (width,),
        "attn_q.weight": (width, width),
        "attn_k.weight": (width // heads * shared, width),
        "attn_v.weight": (width // heads * shared, width),
        "attn_output.weight": (width, width),
        "ffn_norm.weight": (width,),
        "ffn_gate.weight": (hidden, width),
        "ffn_up.weight": (hidden, width),
        "ffn_down.weight": (width, hidden),
    }
    metadata = hyperparameters(
        architecture,
        block_count=layers,
        embedding_length=width,
        feed_forward_length=hidden,
        attention__head_count=heads,
        attention__head_count_kv=shared,
        **{"vocab_size": vocabulary} | more,
    )
    return metadata, head | in_layers(layers, body)


def in_layers(layers: int, shapes: Shapes) -> Shapes:
    """Return the tensors of one layer for each of `layers`."""
    return {f"blk.{i}.{name}": shape for i in range(layers) for name, shape in shapes.items()}


def without(model: tuple[dict[str, Any], Shapes], *parts: str) -> tuple[dict[str, Any], Shapes]:
    """Return a model without the tensors whose names hold one of `parts`."""
    metadata, shapes = model
    remaining = {k: v for k, v in shapes.items() if not any(part in k for part in parts)}
    return metadata, remaining


def with_tensors(
    model: tuple[dict[str, Any], Shapes], layers: int, shapes: Shapes
) -> tuple[dict[str, Any], Shapes]:
    """Return a model with more tensors in each layer."""
    return model[0], model[1] | in_layers(layers, shapes)


def experts(
    model: tuple[dict[str, Any], Shapes], count: int, layers: int, width: int, hidden: int
) -> tuple[dict[str, Any], Shapes]:
    """Return a model whose feed forward is `count` stacked experts, and a router."""
    stacks = {
        "ffn_gate_inp.weight": (count, width),
        "ffn_gate_exps.weight": (count, hidden, width),
        "ffn_up_exps.weight": (count, hidden, width),
        "ffn_down_exps.weight": (count, width, hidden),
    }
    return with_tensors(without(model, "ffn_gate.", "ffn_up.", "ffn_down."), layers, stacks)


LATENT_TENSORS = {
    "attn_q_a.weight": (1536, 5120),
    "attn_q_b.weight": (24576, 1536),
    "attn_kv_a_mqa.weight": (576, 5120),
    "attn_kv_b.weight": (32768, 512),
    "attn_k_b.weight": (128, 512, 128),
    "attn_v_b.weight": (128, 128, 512),
    "ffn_up_shexp.weight": (3072, 5120),
    "ffn_gate_shexp.weight": (3072, 5120),
    "ffn_down_shexp.weight": (5120, 3072),
}
LATENT = {
    "leading_dense_block_count": 1,
    "attention__q_lora_rank": 1536,
    "attention__kv_lora_rank": 512,
    "attention__key_length": 192,
    "attention__value_length": 128,
    "expert_feed_forward_length": 1536,
    "expert_shared_count": 2,
    "expert_count": 160,
    "expert_used_count": 6,
    "rope__dimension_count": 64,
}
LINEAR = {
    "attention__key_length_mla": 32,
    "attention__value_length_mla": 32,
    "ssm__conv_kernel": 4,
    "kda__head_dim": 32,
    "kda__gate_lower_bound": -5.0,
    "expert_gating_func": 2,
    "attention__indexer__head_count": 2,
    "attention__indexer__key_length": 32,
    "attention__indexer__top_k": 4,
    "attention__indexer__kpool": 2,
    "hyper_connection__count": 4,
    "hyper_connection__sinkhorn_iterations": 1,
    "hyper_connection__epsilon": 1e-5,
    "attention__layer_norm_rms_epsilon": 1e-5,
}


def large() -> Models:
    """Return metadata and shapes of models that the policy treats specially."""
    return _dense() | _mixtures() | _unusual()


def _dense() -> Models:
    return {
        "llama 7B": dense("llama", 32, 4096, 32, 32, 11008),
        "llama 65B": dense("llama", 80, 8192, 64, 64, 22016),
        "llama 70B": dense("llama", 80, 8192, 64, 8, 28672),
        "qwen2 72B": dense("qwen2", 80, 8192, 64, 8, 29568),
        "tied": without(dense("llama", 16, 2048, 32, 8, 8192), "output.weight"),
        "odd width": dense("llama", 5, 2080, 26, 13, 5472),
        "odder width": dense("llama", 5, 2072, 14, 7, 5480),
        "deci 70B": dense("deci", 80, 1024, 8, 8, 2048),
        "jais2 70B": dense("jais2", 68, 1024, 8, 8, 2048),
        "olmo 70B": dense("olmo", 80, 1024, 8, 8, 2048),
        "embedding 70B": dense("llama-embed", 80, 1024, 8, 2, 2048),
        "70B and a predicted layer": dense("llama", 81, 1024, 8, 2, 2048, nextn_predict_layers=1),
        "looped": dense("nanbeige", 16, 2048, 16, 4, 4096, num_loops=2),
    }


def _mixtures() -> Models:
    return {
        "mixtral 8x7B": experts(
            dense("llama", 32, 4096, 32, 8, 14336, expert_count=8, expert_used_count=2),
            8,
            32,
            4096,
            14336,
        ),
        "4 experts": experts(
            dense("llama", 12, 2048, 16, 16, 4096, expert_count=4, expert_used_count=2),
            4,
            12,
            2048,
            4096,
        ),
        "qwen3moe": experts(
            dense("qwen3moe", 48, 2048, 32, 4, 6144, expert_count=128, expert_used_count=2),
            128,
            48,
            2048,
            768,
        ),
        "deepseek2": with_tensors(
            experts(dense("deepseek2", 20, 5120, 128, 128, 12288, **LATENT), 160, 20, 5120, 1536),
            20,
            LATENT_TENSORS,
        ),
        "bailingmoe3": with_tensors(
            experts(
                dense("bailingmoe3", 4, 2048, 16, 16, 4096, **LATENT, **LINEAR), 16, 4, 2048, 768
            ),
            4,
            LATENT_TENSORS,
        ),
        "glm5-next": with_tensors(
            experts(
                dense("glm5-next", 8, 2048, 16, 16, 4096, **LATENT, **LINEAR), 16, 8, 2048, 768
            ),
            8,
            LATENT_TENSORS
            | {"nextn.eh_proj.weight": (2048, 4096), "hc_attn_fn.weight": (24, 2048)},
        ),
    }


def _unusual() -> Models:
    fused = {"attn_qkv.weight": (4544 + 128, 4544)}
    by_layer = dense("llama", 6, 2048, 16, 8, 4096)
    return {
        "falcon 7B": with_tensors(
            without(dense("falcon", 32, 4544, 71, 1, 18176), "attn_q", "attn_k", "attn_v"),
            32,
            fused,
        ),
        "per layer embedding": (
            (model := dense("llama", 4, 2048, 16, 4, 4096))[0],
            model[1] | {"per_layer_token_embd.weight": (32000, 1024)},
        ),
        "heads by layer": (
            by_layer[0] | {"llama.attention.head_count_kv": [2, 8, 8, 8, 8, 8]},
            by_layer[1],
        ),
    }
