"""The cases of Tencent's Hunyuan."""

from __future__ import annotations

from typing import Any

from case import case

RAW: dict[str, Any] = {}
CASES = {
    "hunyuan-dense": case("HunYuanDenseV1Config", head_dim=16),
    "hunyuan-dynamic": case(
        "HunYuanDenseV1Config",
        head_dim=16,
        max_position_embeddings=262144,
        rope_scaling={"type": "dynamic", "alpha": 1000.0, "factor": 1.0},
    ),
}
