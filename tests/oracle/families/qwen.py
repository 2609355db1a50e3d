"""The cases of Qwen's models of 2025 and later."""

from __future__ import annotations

from typing import Any

from case import YARN, case

RAW: dict[str, Any] = {}
CASES = {
    "qwen3-saved-by-5": case("Qwen3Config", head_dim=32, library=5),
    "qwen3-yarn-saved-by-5": case(
        "Qwen3Config", head_dim=32, library=5, rope_parameters=YARN | {"rope_theta": 50000.0}
    ),
}
