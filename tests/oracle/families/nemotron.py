"""The cases of Nemotron-H and Nemotron 3."""

from __future__ import annotations

from typing import Any

from case import case

MAMBA = {
    "mamba_num_heads": 8, "mamba_head_dim": 16, "ssm_state_size": 16, "n_groups": 2,
    "head_dim": 16, "expand": 2,
}  # fmt: skip
RAW: dict[str, Any] = {}
CASES = {
    "nemotron-h-moe": case(
        "NemotronHConfig", library=5, **MAMBA, num_hidden_layers=4,
        layers_block_type=["mamba", "moe", "attention", "moe"], n_routed_experts=4,
        num_experts_per_tok=2, moe_intermediate_size=32, moe_shared_expert_intermediate_size=48,
        n_shared_experts=1, n_group=1, topk_group=1, routed_scaling_factor=2.5,
        norm_topk_prob=True, num_nextn_predict_layers=0,
    ),
}  # fmt: skip
