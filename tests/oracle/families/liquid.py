"""The cases of Liquid's LFM2 with experts, and as an encoder."""

from __future__ import annotations

from typing import Any

from case import case

RAW: dict[str, Any] = {}
CASES = {
    "lfm2-moe": case(
        "Lfm2MoeConfig", library=5, moe_intermediate_size=32, num_dense_layers=1,
        num_experts=4, num_experts_per_tok=2, conv_L_cache=3, use_expert_bias=True,
        layer_types=["conv", "full_attention", "conv"],
    ),
    "lfm2-embedder": case(
        "Lfm2Config", model="Lfm2Model", full_attn_idxs=[1], conv_L_cache=3, block_multiple_of=32,
    ),
}  # fmt: skip
