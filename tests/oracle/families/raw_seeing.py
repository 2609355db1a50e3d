"""The cases of text models of models that see or hear, with the names of their publishers."""

from __future__ import annotations

from typing import Any

from raw_shapes import LLAMA, Names, heads, raw


def inside(prefix: str, names: Names) -> Names:
    """Return the names of a text model inside a larger one."""
    return {name.replace("model.", prefix, 1): shape for name, shape in names.items()}


def below(text: str, spec: dict[str, Any], **outer: Any) -> dict[str, Any]:
    """Return a case whose configuration lies below a field of another."""
    config = dict(spec["config"])
    names = config.pop("architectures")
    return {**spec, "config": {"architectures": names, **outer, text: config}}


CASES: dict[str, Any] = {}
RAW = {
    "hunyuan-vl": raw(
        "HunYuanVLForConditionalGeneration",
        LLAMA | {
            "model.layers.{i}.self_attn.query_layernorm.weight": (16,),
            "model.layers.{i}.self_attn.key_layernorm.weight": (16,),
            "vit.embeddings.patch_embedding.weight": (4, 4),
        },
        model_type="hunyuan_vl_raw", head_dim=16, num_experts=1, eod_token_id=3,
        rope_scaling={
            "type": "xdrope", "alpha": 1000.0, "factor": 1.0, "xdrope_section": [2, 2, 2, 2],
        },
    ),
    "qwen3-asr": below("text_config", raw(
        "Qwen3ASRForConditionalGeneration",
        inside("model.language_model.", LLAMA | heads(16)), vocabulary="chatml",
        model_type="qwen3_raw", head_dim=16, rope_theta=None,
        rope_scaling={"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]},
    ), model_type="qwen3_asr_raw"),
}  # fmt: skip
