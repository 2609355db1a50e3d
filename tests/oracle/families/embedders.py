"""The cases of models that embed texts."""

from __future__ import annotations

from typing import Any

from case import case

RAW: dict[str, Any] = {}
CASES = {
    "eurobert": case(
        "EuroBertConfig", library=5, kind="AutoModel", head_dim=16, classifier_pooling="mean",
    ),
    "embedding-gemma": case(
        "Gemma3TextConfig", vocabulary="gemma", kind="AutoModel", head_dim=16, sliding_window=65,
        num_hidden_layers=6,
        query_pre_attn_scalar=16, use_bidirectional_attention=True,
    ),
}  # fmt: skip
