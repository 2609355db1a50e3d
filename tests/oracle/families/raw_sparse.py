"""The cases of models with experts whose code is in neither version of transformers."""

from __future__ import annotations

from typing import Any

from raw_shapes import ATTENTION, ENDS, EXPERTS, FEED_FORWARD, NORMS, at, heads, raw

BAILING = {
    "model.word_embeddings.weight": (416, 64), "model.norm.weight": (64,),
    "lm_head.weight": (416, 64), **NORMS,
    "model.layers.{i}.attention.query_key_value.weight": (128, 64),
    "model.layers.{i}.attention.dense.weight": (64, 64),
}  # fmt: skip
SHARED = {
    f"model.layers.{{i}}.mlp.shared_experts.{name}.weight": (64, 64)
    for name in ("gate_proj", "up_proj", "down_proj")
}
CHUNKS = {
    f"model.layers.{{i}}.mlp.chunk_experts.{n}.{name}.weight": shape
    for n in range(2)
    for name, shape in (("gate_proj", (16, 64)), ("up_proj", (16, 64)), ("down_proj", (64, 16)))
}
SMALL = {
    "model.layers.{i}.block_sparse_moe.primary_router.weight": (4, 64),
    "model.layers.{i}.block_sparse_moe.experts.{x}.gate.weight": (32, 64),
    "model.layers.{i}.block_sparse_moe.experts.{x}.up.weight": (32, 64),
    "model.layers.{i}.block_sparse_moe.experts.{x}.down.weight": (64, 32),
}
ROUTED = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
CASES: dict[str, Any] = {}
EXAONE = heads(16) | NORMS | ATTENTION
RAW = {
    "exaone-moe-predicting": raw(
        "ExaoneMoEForCausalLM",
        ENDS | EXAONE | at([0], FEED_FORWARD) | at([1, 2], EXPERTS) | at([1, 2], {
            "model.layers.{i}.mlp.e_score_correction_bias": (4,),
            **{
                f"model.layers.{{i}}.mlp.shared_experts.{name}_proj.weight": shape
                for name, shape in (("gate", (32, 64)), ("up", (32, 64)), ("down", (64, 32)))
            },
        }) | {
            "mtp.fc.weight": (64, 128), "mtp.norm.weight": (64,),
            "mtp.pre_fc_norm_embedding.weight": (64,), "mtp.pre_fc_norm_hidden.weight": (64,),
            **{
                name.replace("model.layers.{i}", "mtp.layers.0"): shape
                for name, shape in (EXAONE | FEED_FORWARD).items()
            },
        },
        experts=4, model_type="exaone_moe-raw", head_dim=16, num_nextn_predict_layers=1,
        sliding_window=64, layer_types=["sliding_attention", "sliding_attention", "full_attention"],
        num_shared_experts=1, first_k_dense_replace=1, routed_scaling_factor=2.5,
        scoring_func="sigmoid", norm_topk_prob=True, n_group=1, topk_group=1, **ROUTED,
    ),
    "bailing": raw(
        "BailingMoeForCausalLM", BAILING | EXPERTS | SHARED, experts=4, model_type="bailing_moe",
        num_shared_experts=2, first_k_dense_replace=0, norm_topk_prob=True, **ROUTED,
    ),
    "bailing2": raw(
        "BailingMoeV2ForCausalLM",
        BAILING | at([1, 2], EXPERTS | SHARED) | at([0], FEED_FORWARD) | {
            "model.layers.{i}.attention.query_layernorm.weight": (16,),
            "model.layers.{i}.attention.key_layernorm.weight": (16,),
            **at([1, 2], {"model.layers.{i}.mlp.gate.expert_bias": (4,)}),
        },
        experts=4, model_type="bailing_moe_v2", num_shared_experts=1, first_k_dense_replace=1,
        norm_topk_prob=True, routed_scaling_factor=2.5, score_function="sigmoid", n_group=1,
        topk_group=1, head_dim=16, partial_rotary_factor=0.5,
        moe_shared_expert_intermediate_size=64, **ROUTED,
    ),
    "llada-moe": raw(
        "LLaDAMoEModelLM", ENDS | NORMS | ATTENTION | heads(16) | EXPERTS, experts=4,
        model_type="lladamoe", num_experts=4, num_experts_per_tok=2, expert_intermediate_size=32,
        norm_topk_prob=None,
    ),
    "grovemoe": raw(
        "GroveMoeForCausalLM", ENDS | NORMS | ATTENTION | heads(16) | EXPERTS | CHUNKS, experts=4,
        model_type="grove_moe", head_dim=16, **ROUTED,
    ),
    "smallthinker": raw(
        "SmallThinkerForCausalLM", ENDS | NORMS | ATTENTION | SMALL, experts=4,
        model_type="smallthinker", moe_num_primary_experts=4, moe_num_active_primary_experts=2,
        moe_ffn_hidden_size=32, intermediate_size=None, moe_primary_router_apply_softmax=False,
        sliding_window_layout=[0, 1, 1], sliding_window_size=64, head_dim=16,
        hidden_act=None,
    ),
}  # fmt: skip
