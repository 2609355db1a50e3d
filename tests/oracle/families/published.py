"""The cases of published checkpoints that spell what others spell otherwise."""

from __future__ import annotations

from typing import Any

from case import ABSENT, ENCODER, case
from families.glm import CASES as GLM
from families.internvl import RAW as INTERNVL
from families.qwen_vl import DEEP_EYES, ROPE, SEEING
from families.raw_dense import BLOCKS
from families.raw_newest_sparse import RAW as NEWEST
from families.raw_sparse import RAW as SPARSE
from raw_shapes import raw, spelled

RERANKER = {
    "vocabulary": "answers", "otherwise": "llama.cpp computes a rank",
    "files": {"README.md": "# Qwen3-Reranker-0.6B\n"},
}  # fmt: skip
WITHOUT_GATES = {"scoring_func": ABSENT}
CASES: dict[str, Any] = {
    "qwen3-reranker": case("Qwen3Config", head_dim=32, **RERANKER),
    "qwen3-titled-reranker": case(
        "Qwen3Config", head_dim=32, tie_word_embeddings=True, **RERANKER
    ),
    "qwen3-vl-reranker-2b": case(
        "Qwen3VLConfig", kind=SEEING, vision_config=DEEP_EYES, tie_word_embeddings=True,
        text_config={"head_dim": 32, "rope_scaling": ROPE, "tie_word_embeddings": True},
        **RERANKER,
    ),
    "lfm2-first": case(
        "Lfm2Config", full_attn_idxs=[1], conv_L_cache=3, block_multiple_of=32,
        published={
            "layer_types": ABSENT, "full_attn_idxs": [1], "block_dim": 64, "block_ff_dim": 96,
            "block_norm_eps": 1e-5, "block_use_swiglu": True, "conv_dim": 64, "conv_dim_out": 64,
            "conv_use_xavier_init": True, "num_heads": 4, "theta": 1000000.0, "use_pos_enc": True,
        },
    ),
    "glm-4.7-flash": GLM["glm4moelite"] | {
        "published": WITHOUT_GATES, "otherwise": "llama.cpp knows the sigmoid by the sizes",
    },
    "deepseek3-saved": case(
        "DeepseekV3Config", num_key_value_heads=4, moe_intermediate_size=32, n_routed_experts=12,
        num_experts_per_tok=2, n_shared_experts=1, first_k_dense_replace=1, kv_lora_rank=16,
        q_lora_rank=24, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=12, n_group=2,
        topk_group=1,
    ),
    "glm-5": GLM["glmdsa"] | {"published": WITHOUT_GATES},
    "modernbert-saved-by-5": case(
        "ModernBertConfig", kind="AutoModel", library=5, local_attention=32, layer_norm_eps=1e-5,
        **ENCODER,
    ),
    "distilbert-decoder": case(
        "DistilBertConfig", vocabulary="words", dim=64, n_heads=4, n_layers=3, hidden_dim=96,
        published={"is_decoder": True, "position_embedding_type": "relative_key"}, **ENCODER,
    ),
    "starcoder2-norms": case(
        "Starcoder2Config", use_bias=True, published={"norm_type": "rms_norm", "mlp_type": "gated"},
    ),
    "phi3-defaults": case(
        "Phi3Config", vocabulary="pieces",
        published={"original_max_position_embeddings": ABSENT},
    ),
    "command-a-moe": case(
        "Cohere2MoeConfig", library=5, head_dim=16, num_experts=4, num_experts_per_tok=2,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
        sliding_window=64, logit_scale=0.25, first_k_dense_replace=0,
        published={"prefix_dense_intermediate_size": None},
    ),
}  # fmt: skip
RAW: dict[str, Any] = {
    "llada-8b": raw(
        "LLaDAModelLM", BLOCKS, model_type="llada", d_model=64, n_heads=4, n_kv_heads=4,
        n_layers=3, mlp_hidden_size=96, max_sequence_length=512, mask_token_id=3,
        embedding_size=416, alibi=False, alibi_bias_max=8.0, rope=True, mlp_ratio=4,
        activation_type="silu", block_type="llama", weight_tying=False, scale_logits=False,
        layer_norm_type="rms", attention_layer_norm=False, include_bias=False,
        rope_full_precision=True, block_group_size=1, hidden_size=None, hidden_act=None,
        intermediate_size=None, num_hidden_layers=None, num_attention_heads=None,
        num_key_value_heads=None, max_position_embeddings=None,
    ),
    "ling-mini-2.0": spelled(SPARSE["bailing2"], use_qk_norm=True),
    "ling-lite": spelled(SPARSE["bailing"], norm_head=True),
    "step3.5-flash": spelled(NEWEST["step35"], use_qk_norm=True),
    "smallthinker-silu": spelled(SPARSE["smallthinker"], hidden_act="silu"),
    "internvl3": {**INTERNVL["internvl"], "vocabulary": "chatml"},
}  # fmt: skip
