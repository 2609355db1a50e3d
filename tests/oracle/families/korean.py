"""The cases of EXAONE with experts."""

from __future__ import annotations

from typing import Any

from case import case

RAW: dict[str, Any] = {}
CASES = {
    "exaone-moe": case(
        "ExaoneMoeConfig", library=5, head_dim=16, sliding_window=64,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
        sliding_window_pattern="LLG", num_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=32, num_shared_experts=1, first_k_dense_replace=1,
        mlp_layer_types=["dense", "sparse", "sparse"], is_moe_layer=[False, True, True],
        n_group=1, topk_group=1, routed_scaling_factor=2.5, scoring_func="sigmoid",
        norm_topk_prob=True,
    ),
}  # fmt: skip
