"""The cases of Gemma 3n and 4."""

from __future__ import annotations

from typing import Any

from case import case

RAW: dict[str, Any] = {}
CASES = {
    "gemma3n": case(
        "Gemma3nTextConfig",
        library=5,
        vocabulary="gemma",
        num_hidden_layers=5,
        head_dim=16,
        vocab_size_per_layer_input=408,
        hidden_size_per_layer_input=8,
        num_kv_shared_layers=0,
        sliding_window=64,
        activation_sparsity_pattern=[0.95, 0.95, 0.0, 0.0, 0.0],
        laurel_rank=8,
        intermediate_size=96,
        layer_types=[
            "sliding_attention",
            "sliding_attention",
            "full_attention",
            "sliding_attention",
            "full_attention",
        ],
    ),
}
