"""The cases of DeepSeek's models, and of those with the same structure."""

from __future__ import annotations

from typing import Any

from case import BASE, YARN, case
from latent import LATENT, SPARSE, indexed, latent_layer, predicting

DENSE = {
    "model.embed_tokens.weight": (416, 64), "model.norm.weight": (64,), "lm_head.weight": (416, 64),
    "model.layers.{i}.input_layernorm.weight": (64,),
    "model.layers.{i}.post_attention_layernorm.weight": (64,),
    "model.layers.0.mlp.gate_proj.weight": (96, 64), "model.layers.0.mlp.up_proj.weight": (96, 64),
    "model.layers.0.mlp.down_proj.weight": (64, 96),
}  # fmt: skip
PLAIN = {
    f"model.layers.{{i}}.self_attn.{name}_proj.weight": (64, 64) for name in ("q", "k", "v", "o")
}
SHAPES = {"gate_proj": (32, 64), "up_proj": (32, 64), "down_proj": (64, 32)}


def sparse_layers(*layers: int) -> dict[str, tuple[int, ...]]:
    """Return the tensors of layers with experts, some of them shared."""
    return {
        **{f"model.layers.{i}.mlp.gate.weight": (6, 64) for i in layers},
        **{
            f"model.layers.{i}.mlp.experts.{x}.{name}.weight": shape
            for i in layers for x in range(6) for name, shape in SHAPES.items()
        },
        **{
            f"model.layers.{i}.mlp.shared_experts.{name}.weight":
                tuple(2 * n if n == 32 else n for n in shape)
            for i in layers for name, shape in SHAPES.items()
        },
    }  # fmt: skip


CONFIG = {
    **BASE, "hidden_act": "silu", "rms_norm_eps": 1e-6, "num_key_value_heads": 4,
    "n_routed_experts": 6, "num_experts_per_tok": 2, "n_shared_experts": 2,
    "moe_intermediate_size": 32, "first_k_dense_replace": 1, "rope_theta": 10000.0,
    "tie_word_embeddings": False, "norm_topk_prob": False, "scoring_func": "softmax",
    "moe_layer_freq": 1, "aux_loss_alpha": 0.001, "seq_aux": True,
}  # fmt: skip
KIMI = {
    name.replace("{i}", str(i)): shape
    for i in range(3)
    for name, shape in {
        **{n: s for n, s in DENSE.items() if "{i}" in n or i == 0},
        **{f"model.layers.{{i}}.{name}": shape for name, shape in latent_layer().items()},
    }.items()
}
RAW: dict[str, Any] = {
    "kimi-vl": {
        "vocabulary": "bytes",
        "config": {
            "architectures": ["KimiVLForConditionalGeneration"], "model_type": "kimi_vl",
            "text_config": {
                **CONFIG, **LATENT, "model_type": "deepseek_v3", "scoring_func": "sigmoid",
                "topk_method": "noaux_tc", "n_group": 1, "topk_group": 1, "ep_size": 1,
                "routed_scaling_factor": 2.446, "norm_topk_prob": True,
            },
            "vision_config": {"hidden_size": 32, "model_type": "moonvit", "num_hidden_layers": 2},
        },
        "tensors": {
            **{f"language_model.{name}": shape for name, shape in
               {**KIMI, **sparse_layers(1, 2)}.items()},
            **{f"language_model.model.layers.{i}.mlp.gate.e_score_correction_bias": (6,)
               for i in (1, 2)},
            "multi_modal_projector.linear_1.weight": (8, 8),
            "vision_tower.encoder.blocks.0.norm0.weight": (8,),
        },
    },
    "deepseek": {
        "vocabulary": "bytes",
        "config": {**CONFIG, "architectures": ["DeepseekForCausalLM"], "model_type": "deepseek",
                   "rope_scaling": None, "attention_bias": False},
        "tensors": {**DENSE, **PLAIN, **sparse_layers(1, 2)},
    },
    "deepseek-ocr": {
        "vocabulary": "bytes",
        "config": {
            "architectures": ["DeepseekOCRForCausalLM"], "model_type": "deepseek_vl_v2",
            "language_config": {
                **CONFIG, "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2",
                "use_mla": False, "kv_lora_rank": None, "q_lora_rank": None, "qk_nope_head_dim": 0,
                "qk_rope_head_dim": 0, "v_head_dim": 0, "topk_method": "greedy", "n_group": 1,
                "topk_group": 1,
            },
            "projector_config": {"input_dim": 64, "model_type": "mlp_projector", "n_embed": 64},
            "vision_config": {"image_size": 64, "mlp_ratio": 4.0, "model_type": "vision"},
        },
        "tensors": {
            **DENSE, **PLAIN, **sparse_layers(1, 2), "model.image_newline": (64,),
            "model.view_seperator": (64,), "model.projector.layers.weight": (64, 64),
            "model.sam_model.patch_embed.proj.weight": (8, 12),
            "model.vision_model.embeddings.class_embedding": (8,),
        },
    },
}  # fmt: skip
CASES = {
    "deepseek32": case(
        "DeepseekV32Config", vocabulary="beginning", library=5, num_nextn_predict_layers=1,
        first_k_dense_replace=1, index_topk=256, index_head_dim=64, index_n_heads=4,
        extra=predicting(3, latent_layer() | indexed()), **LATENT,
        **SPARSE | {"n_group": 2, "topk_group": 1},
        rope_parameters=YARN | {"rope_theta": 1e4, "mscale_all_dim": 1.0, "mscale": 1.0},
    ),
    "youtu": case("YoutuConfig", library=5, tie_word_embeddings=False, **LATENT),
    "minimax-m2": case(
        "MiniMaxM2Config", library=5, head_dim=32, num_local_experts=6, num_experts_per_tok=2,
        rotary_dim=16, scoring_func="sigmoid",
    ),
}  # fmt: skip
RAW["kimi25"] = {
    **RAW["kimi-vl"],
    "config": RAW["kimi-vl"]["config"]
    | {"architectures": ["KimiK25ForConditionalGeneration"], "model_type": "kimi_k25"},
}
