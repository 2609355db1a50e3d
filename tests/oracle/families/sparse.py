"""The cases of models with experts that have no older kin."""

from __future__ import annotations

from typing import Any

from case import case

MIXED = ["sliding_attention", "sliding_attention", "full_attention"]
RAW: dict[str, Any] = {}
CASES = {
    "afmoe": case(
        "AfmoeConfig", library=5, head_dim=16, num_experts=4, num_experts_per_tok=2,
        num_shared_experts=1, moe_intermediate_size=32, num_dense_layers=1, mup_enabled=True,
        num_hidden_layers=4,
        layer_types=["sliding_attention"] * 3 + ["full_attention"],
        sliding_window=64, score_func="sigmoid", route_norm=True, route_scale=2.0, n_group=1,
        topk_group=1,
    ),
    "mellum": case(
        "MellumConfig", library=5, head_dim=16, num_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=32, layer_types=MIXED, sliding_window=64, norm_topk_prob=True,
        # llama.cpp rotates by one base in all layers.
        rope_parameters={
            "full_attention": {"rope_type": "default", "rope_theta": 500000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0},
        },
    ),
    "laguna": case(
        "LagunaConfig", library=5, head_dim=16, num_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=32, shared_expert_intermediate_size=32, num_hidden_layers=4,
        layer_types=["full_attention"] + ["sliding_attention"] * 3, sliding_window=64,
        mlp_layer_types=["dense", "sparse", "sparse", "sparse"],
    ),
    "cohere2-moe": case(
        "Cohere2MoeConfig", library=5, head_dim=16, num_experts=4, num_experts_per_tok=2,
        num_shared_experts=1, layer_types=MIXED, sliding_window=64, logit_scale=0.25,
        first_k_dense_replace=1, prefix_dense_intermediate_size=128,
    ),
}  # fmt: skip
