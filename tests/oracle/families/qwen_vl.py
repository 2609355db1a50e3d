"""The cases of the text models of Qwen's models that see and hear."""

from __future__ import annotations

from typing import Any

from case import BASE, case

SECTIONS = {"type": "mrope", "mrope_section": [2, 3, 3]}
OLD_EYES = {
    "depth": 2, "embed_dim": 32, "hidden_size": 64, "num_heads": 2, "patch_size": 4, "mlp_ratio": 2,
}  # fmt: skip
EYES = {
    "depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 64,
    "patch_size": 4, "fullatt_block_indexes": [1],
}  # fmt: skip
DEEP_EYES = {
    "depth": 3, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 64,
    "patch_size": 4, "num_position_embeddings": 16, "deepstack_visual_indexes": [0, 2],
}  # fmt: skip
EXPERTS = {
    "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": True,
}  # fmt: skip
ROPE = {"rope_type": "default", "mrope_section": [4, 6, 6]}
SEEING = "AutoModelForImageTextToText"
TEXT = {
    **BASE, "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
    "tie_word_embeddings": False, "head_dim": 32,
}  # fmt: skip
LAYER = {
    "input_layernorm.weight": (64,), "post_attention_layernorm.weight": (64,),
    "self_attn.q_proj.weight": (128, 64), "self_attn.k_proj.weight": (64, 64),
    "self_attn.v_proj.weight": (64, 64), "self_attn.o_proj.weight": (64, 128),
}  # fmt: skip
NORMS = {"self_attn.q_norm.weight": (32,), "self_attn.k_norm.weight": (32,)}
BIASES = {
    "self_attn.q_proj.weight": (64, 64), "self_attn.k_proj.weight": (32, 64),
    "self_attn.v_proj.weight": (32, 64), "self_attn.o_proj.weight": (64, 64),
    "self_attn.q_proj.bias": (64,), "self_attn.k_proj.bias": (32,), "self_attn.v_proj.bias": (32,),
}  # fmt: skip
DENSE = {
    f"mlp.{n}_proj.weight": shape
    for n, shape in (("gate", (96, 64)), ("up", (96, 64)), ("down", (64, 96)))
}
SPARSE = {
    "mlp.gate.weight": (6, 64),
    **{f"mlp.experts.{{x}}.{n}_proj.weight": (32, 64) for n in ("gate", "up")},
    "mlp.experts.{x}.down_proj.weight": (64, 32),
}


def thinking(layer: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Return the tensors of a model that hears, sees and talks; of all but the text a few."""
    return {
        "thinker.model.embed_tokens.weight": (416, 64), "thinker.model.norm.weight": (64,),
        "thinker.lm_head.weight": (416, 64),
        **{f"thinker.model.layers.{{i}}.{name}": shape for name, shape in layer.items()},
        "thinker.audio_tower.conv1.weight": (8, 8),
        "thinker.visual.patch_embed.proj.weight": (8, 8),
        "talker.model.norm.weight": (64,), "token2wav.bigvgan.conv.weight": (8, 8),
        "code2wav.decoder.0.weight": (8, 8),
    }  # fmt: skip


RAW: dict[str, Any] = {
    "qwen25omni": {
        "vocabulary": "bytes", "tensors": thinking({**LAYER, **BIASES, **DENSE}),
        "config": {
            "architectures": ["Qwen2_5OmniModel"], "model_type": "qwen2_5_omni",
            "thinker_config": {
                "model_type": "qwen2_5_omni_thinker",
                "text_config": {**TEXT, "model_type": "qwen2_5_omni_text", "head_dim": 16,
                                "rope_scaling": {"type": "default", "mrope_section": [2, 3, 3]}},
            },
        },
    },
    "qwen3omni": {
        "vocabulary": "chatml", "experts": 6, "tensors": thinking({**LAYER, **NORMS, **SPARSE}),
        "config": {
            "architectures": ["Qwen3OmniMoeForConditionalGeneration"],
            "model_type": "qwen3_omni_moe",
            "thinker_config": {
                "model_type": "qwen3_omni_moe_thinker",
                "text_config": {**TEXT, **EXPERTS, "model_type": "qwen3_omni_moe_text",
                                "rope_scaling": {"type": "default", "mrope_section": [4, 6, 6]}},
            },
        },
    },
}  # fmt: skip
CASES = {
    "qwen2vl": case(
        "Qwen2VLConfig", kind=SEEING, vision_config=OLD_EYES,
        text_config={"rope_scaling": SECTIONS},
    ),
    "qwen25vl": case(
        "Qwen2_5_VLConfig", kind=SEEING, vision_config=EYES, text_config={"rope_scaling": SECTIONS},
    ),
    "qwen25vl-saved-by-5": case(
        "Qwen2_5_VLConfig", kind=SEEING, vision_config=EYES, library=5,
        text_config={"rope_parameters": {**SECTIONS, "rope_type": "default", "rope_theta": 1e6}},
    ),
    "qwen3vl": case(
        "Qwen3VLConfig", kind=SEEING, vision_config=DEEP_EYES,
        text_config={"head_dim": 32, "rope_scaling": ROPE},
    ),
    "qwen3vl-saved-by-5": case(
        "Qwen3VLConfig", kind=SEEING, vision_config=DEEP_EYES, library=5,
        text_config={"head_dim": 32, "rope_parameters": {**ROPE, "rope_theta": 1e6}},
    ),
    "qwen3vlmoe": case(
        "Qwen3VLMoeConfig", kind=SEEING, vision_config=DEEP_EYES,
        text_config={"head_dim": 32, "rope_scaling": ROPE, **EXPERTS},
    ),
    "qwen2audio": case(
        "Qwen2AudioConfig", kind="AutoModelForSeq2SeqLM", library=4,
        text_config={"model_type": "qwen2"},
        audio_config={"d_model": 32, "encoder_layers": 2, "encoder_attention_heads": 2,
                      "encoder_ffn_dim": 48, "num_mel_bins": 16, "max_source_positions": 64},
    ),
}  # fmt: skip
