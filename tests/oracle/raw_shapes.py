"""Shapes of tensors for classes whose code is in neither version of transformers."""

from __future__ import annotations

from typing import Any

from case import BASE

Names = dict[str, Any]
ENDS: Names = {
    "model.embed_tokens.weight": (416, 64), "model.norm.weight": (64,), "lm_head.weight": (416, 64),
}  # fmt: skip
NORMS: Names = {
    "model.layers.{i}.input_layernorm.weight": (64,),
    "model.layers.{i}.post_attention_layernorm.weight": (64,),
}
ATTENTION: Names = {
    "model.layers.{i}.self_attn.q_proj.weight": (64, 64),
    "model.layers.{i}.self_attn.k_proj.weight": (32, 64),
    "model.layers.{i}.self_attn.v_proj.weight": (32, 64),
    "model.layers.{i}.self_attn.o_proj.weight": (64, 64),
}
FEED_FORWARD: Names = {
    "model.layers.{i}.mlp.gate_proj.weight": (96, 64),
    "model.layers.{i}.mlp.up_proj.weight": (96, 64),
    "model.layers.{i}.mlp.down_proj.weight": (64, 96),
}
EXPERTS: Names = {
    "model.layers.{i}.mlp.gate.weight": (4, 64),
    "model.layers.{i}.mlp.experts.{x}.gate_proj.weight": (32, 64),
    "model.layers.{i}.mlp.experts.{x}.up_proj.weight": (32, 64),
    "model.layers.{i}.mlp.experts.{x}.down_proj.weight": (64, 32),
}
LLAMA: Names = {**ENDS, **NORMS, **ATTENTION, **FEED_FORWARD}


def heads(length: int) -> Names:
    """Return norms of queries and keys."""
    return {f"model.layers.{{i}}.self_attn.{name}_norm.weight": (length,) for name in ("q", "k")}


def at(layers: list[int], names: Names) -> Names:
    """Return the names for some layers only."""
    return {name.replace("{i}", str(n)): names[name] for n in layers for name in names}


def raw(
    architecture: str,
    tensors: Names,
    *,
    vocabulary: str = "bytes",
    experts: int = 1,
    computed: int = 0,
    **fields: Any,
) -> dict[str, Any]:
    """Return a case: BASE and `fields` as config.json, and the tensors; a None leaves one out.

    `computed` is the major version of transformers that loads and computes it, 0 for none.
    """
    config = {**BASE, "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0, **fields}
    present = {name: value for name, value in config.items() if value is not None}
    return {
        "vocabulary": vocabulary,
        "config": {"architectures": [architecture], **present},
        "tensors": tensors,
        "experts": experts,
        "computed": computed,
    }


def spelled(spec: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a case with other fields in config.json; a None leaves one out."""
    config = {**spec["config"], **fields}
    return spec | {"config": {name: value for name, value in config.items() if value is not None}}
