"""The cases of Baidu's ERNIE 4.5."""

from __future__ import annotations

from typing import Any

from case import case

RAW: dict[str, Any] = {}
CASES = {
    "ernie4.5": case("Ernie4_5Config", vocabulary="pieces", head_dim=32),
    "ernie4.5-moe": case(
        "Ernie4_5_MoeConfig",
        vocabulary="pieces",
        intermediate_size=128,
        moe_num_experts=4,
        moe_k=2,
        moe_intermediate_size=32,
        moe_num_shared_experts=2,
        moe_layer_start_index=1,
        moe_layer_end_index=2,
        moe_layer_interval=1,
    ),
}
