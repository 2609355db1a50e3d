"""The cases of dense models with a structure of their own."""

from __future__ import annotations

from typing import Any

from case import YARN, case

RAW: dict[str, Any] = {}
CASES = {
    "ministral3": case(
        "Ministral3Config", library=5, head_dim=16,
        rope_parameters={
            **YARN, "rope_theta": 1000000.0, "mscale": 1.0, "mscale_all_dim": 1.0,
            "llama_4_scaling_beta": 0.1,
        },
    ),
    "apertus": case("ApertusConfig"),
    "jais2": case("Jais2Config", library=5, head_dim=16),
    "granite-swa": case(
        "GraniteSWAConfig", library=5, sliding_window=64,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
        embedding_multiplier=2.0, logits_scaling=4.0, residual_multiplier=0.5,
        attention_multiplier=0.125,
    ),
}  # fmt: skip
