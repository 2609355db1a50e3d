"""The cases of text models of models that see or hear, with the names of their publishers."""

from __future__ import annotations

from typing import Any

from raw_shapes import ATTENTION, FEED_FORWARD, LLAMA, Names, heads, raw


def inside(prefix: str, names: Names) -> Names:
    """Return the names of a text model inside a larger one."""
    return {name.replace("model.", prefix, 1): shape for name, shape in names.items()}


def below(text: str, spec: dict[str, Any], **outer: Any) -> dict[str, Any]:
    """Return a case whose configuration lies below a field of another."""
    config = dict(spec["config"])
    names = config.pop("architectures")
    return {**spec, "config": {"architectures": names, **outer, text: config}}


GEMMA3N: Names = {
    "model.embed_tokens.weight": (416, 64), "model.embed_tokens_per_layer.weight": (408, 768),
    "model.per_layer_model_projection.weight": (768, 64),
    "model.per_layer_projection_norm.weight": (256,), "model.norm.weight": (64,),
    "model.altup_projections.{x}.weight": (64, 64),
    "model.altup_unembed_projections.{x}.weight": (64, 64),
    **ATTENTION, **FEED_FORWARD, **heads(16),
    **{f"model.layers.{{i}}.{name}.weight": shape for name, shape in {
        "altup.correction_coefs": (4, 4), "altup.modality_router": (4, 64),
        "altup.prediction_coefs": (16, 4), "altup.router_norm": (64,),
        "laurel.linear_left": (64, 64), "laurel.linear_right": (64, 64),
        "laurel.post_laurel_norm": (64,), "per_layer_input_gate": (256, 64),
        "per_layer_projection": (64, 256), "post_per_layer_input_norm": (64,),
        "input_layernorm": (64,), "post_attention_layernorm": (64,),
        "pre_feedforward_layernorm": (64,), "post_feedforward_layernorm": (64,),
    }.items()},
    "model.layers.{i}.altup.correct_output_scale": (64,),
}  # fmt: skip
CASES: dict[str, Any] = {}
RAW = {
    "gemma3n-pictures": below("text_config", raw(
        "Gemma3nForConditionalGeneration", inside("model.language_model.", GEMMA3N) | {
            "model.vision_tower.timm_model.conv_stem.conv.weight": (4, 4),
            "model.audio_tower.conformer.{i}.norm.weight": (4,),
            "model.embed_vision.embedding.weight": (4, 4),
        },
        vocabulary="gemma", experts=3, model_type="gemma3n_text", head_dim=16, hidden_act=None,
        hidden_activation="gelu_pytorch_tanh", rope_theta=1e6, rope_local_base_freq=10000.0,
        rms_norm_eps=1e-6,
        vocab_size_per_layer_input=408, hidden_size_per_layer_input=256, num_kv_shared_layers=0,
        sliding_window=64, activation_sparsity_pattern=[0.95, 0.0, 0.0], laurel_rank=64,
        altup_active_idx=0, altup_coef_clip=120.0, altup_correct_scale=True, altup_num_inputs=4,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
        final_logit_softcapping=30.0, intermediate_size=[96, 96, 96],
    ), model_type="gemma3n"),
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
