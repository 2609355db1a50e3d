"""The cases of GLM's models."""

from __future__ import annotations

from typing import Any

from case import case
from latent import LATENT, SPARSE, indexed, latent_layer, predicting

QUERIES = {
    "self_attn.q_proj.weight": (128, 64), "self_attn.q_proj.bias": (128,),
    "self_attn.k_proj.weight": (64, 64), "self_attn.k_proj.bias": (64,),
    "self_attn.v_proj.weight": (64, 64), "self_attn.v_proj.bias": (64,),
    "self_attn.o_proj.weight": (64, 128), "self_attn.q_norm.weight": (32,),
    "self_attn.k_norm.weight": (32,),
}  # fmt: skip
GLM4_MOE = {**SPARSE, "head_dim": 32, "attention_bias": True, "first_k_dense_replace": 1}
EYES = {
    "depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 64,
    "patch_size": 4, "image_size": 16,
}  # fmt: skip
RAW: dict[str, Any] = {
    "chatglm": {
        "vocabulary": "glm",
        "config": {
            "architectures": ["ChatGLMModel"], "model_type": "chatglm", "hidden_size": 64,
            "num_layers": 3, "num_attention_heads": 4, "multi_query_group_num": 2,
            "multi_query_attention": True, "ffn_hidden_size": 96, "seq_length": 512,
            "padded_vocab_size": 416, "vocab_size": 416, "layernorm_epsilon": 1e-5,
            "add_qkv_bias": True, "add_bias_linear": False, "rmsnorm": True, "rope_ratio": 50,
            "kv_channels": 16, "post_layer_norm": True, "original_rope": True,
            "apply_residual_connection_post_layernorm": False,
        },
        "tensors": {
            "transformer.embedding.word_embeddings.weight": (416, 64),
            "transformer.encoder.final_layernorm.weight": (64,),
            "transformer.output_layer.weight": (416, 64),
            "transformer.rotary_pos_emb.inv_freq": (8,),
            "transformer.encoder.layers.{i}.input_layernorm.weight": (64,),
            "transformer.encoder.layers.{i}.self_attention.query_key_value.weight": (128, 64),
            "transformer.encoder.layers.{i}.self_attention.query_key_value.bias": (128,),
            "transformer.encoder.layers.{i}.self_attention.dense.weight": (64, 64),
            "transformer.encoder.layers.{i}.post_attention_layernorm.weight": (64,),
            "transformer.encoder.layers.{i}.mlp.dense_h_to_4h.weight": (192, 64),
            "transformer.encoder.layers.{i}.mlp.dense_4h_to_h.weight": (64, 96),
        },
    },
}  # fmt: skip
CASES = {
    "glm": case("GlmConfig", vocabulary="glm", head_dim=16, attention_bias=True),
    "glm4moe": case(
        "Glm4MoeConfig", vocabulary="glm", use_qk_norm=True, num_nextn_predict_layers=1,
        extra=predicting(3, QUERIES), **GLM4_MOE,
    ),
    "glm4moe-saved-by-5": case(
        "Glm4MoeConfig", vocabulary="glm", num_nextn_predict_layers=1, library=5,
        extra=predicting(3, {k: v for k, v in QUERIES.items() if "norm" not in k}), **GLM4_MOE,
    ),
    "glm4moe-not-predicting": case(
        "Glm4MoeConfig", vocabulary="glm", num_nextn_predict_layers=0, **GLM4_MOE
    ),
    "glm4moelite": case(
        "Glm4MoeLiteConfig", vocabulary="glm", library=5, num_nextn_predict_layers=1,
        first_k_dense_replace=1, extra=predicting(3, latent_layer()), **LATENT, **SPARSE,
    ),
    "glmdsa": case(
        "GlmMoeDsaConfig", vocabulary="glm", library=5, num_nextn_predict_layers=1,
        first_k_dense_replace=1, extra=predicting(3, latent_layer() | indexed()), **LATENT,
        **SPARSE, index_topk=256, index_head_dim=64, index_n_heads=4,
    ),
    "glm4v": case(
        "Glm4vConfig", vocabulary="glm", library=5, kind="AutoModelForImageTextToText",
        vision_config=EYES, text_config={
            "rope_parameters": {
                "rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2],
                "partial_rotary_factor": 0.5,
            },
        },
    ),
    "glm4vmoe": case(
        "Glm4vMoeConfig", vocabulary="glm", library=5, kind="AutoModelForImageTextToText",
        vision_config=EYES, text_config={**GLM4_MOE, "rope_parameters": {
            "rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3],
            "partial_rotary_factor": 0.5,
        }},
    ),
    "glm-ocr": case(
        "GlmOcrConfig", vocabulary="glm", library=5, kind="AutoModelForImageTextToText",
        vision_config=EYES, text_config={"num_nextn_predict_layers": 0, "head_dim": 16,
            "rope_parameters": {
                "rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3],
                "partial_rotary_factor": 1.0,
            }},
    ),
    "solar-open": case(
        "SolarOpenConfig", vocabulary="glm", library=5, head_dim=32, partial_rotary_factor=1.0,
        **SPARSE,
    ),
}  # fmt: skip
