"""The cases of InternVL's text models, and of InternLM 3."""

from __future__ import annotations

from typing import Any

from case import BASE

LAYER = {
    "input_layernorm.weight": (64,), "post_attention_layernorm.weight": (64,),
    "self_attn.q_proj.weight": (64, 64), "self_attn.k_proj.weight": (32, 64),
    "self_attn.v_proj.weight": (32, 64), "self_attn.o_proj.weight": (64, 64),
    "self_attn.q_proj.bias": (64,), "self_attn.k_proj.bias": (32,), "self_attn.v_proj.bias": (32,),
    "mlp.gate_proj.weight": (96, 64), "mlp.up_proj.weight": (96, 64),
    "mlp.down_proj.weight": (64, 96),
}  # fmt: skip
RAW: dict[str, Any] = {
    "internvl": {
        "vocabulary": "bytes",
        "config": {
            "architectures": ["InternVLChatModel"], "model_type": "internvl_chat",
            "llm_config": {
                **BASE, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2",
                "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
                "tie_word_embeddings": False, "use_sliding_window": False, "sliding_window": None,
            },
            "vision_config": {"hidden_size": 32, "model_type": "intern_vit_6b"},
            "downsample_ratio": 0.5, "select_layer": -1, "template": "internvl2_5",
        },
        "tensors": {
            "language_model.model.embed_tokens.weight": (416, 64),
            "language_model.model.norm.weight": (64,), "language_model.lm_head.weight": (416, 64),
            **{f"language_model.model.layers.{{i}}.{name}": shape for name, shape in LAYER.items()},
            "mlp1.0.weight": (64,), "mlp1.1.weight": (64, 64),
            "vision_model.embeddings.class_embedding": (1, 1, 32),
            "vision_model.encoder.layers.0.attn.qkv.weight": (96, 32),
        },
    },
    "internlm3": {
        "vocabulary": "pieces",
        "config": {
            **BASE, "architectures": ["InternLM3ForCausalLM"], "model_type": "internlm3",
            "vocab_size": 400, "bias": False, "qkv_bias": True, "head_dim": 16,
            "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 50000.0,
        },
        "tensors": {
            "model.embed_tokens.weight": (400, 64), "model.norm.weight": (64,),
            "lm_head.weight": (400, 64),
            **{f"model.layers.{{i}}.{name}": shape for name, shape in LAYER.items()},
        },
    },
}  # fmt: skip
CASES: dict[str, Any] = {}
