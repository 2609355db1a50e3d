"""The cases of Mistral's and Meta's models of 2025."""

from __future__ import annotations

from typing import Any

from case import case

RAW: dict[str, Any] = {}
CASES = {
    "mistral3": case(
        "Mistral3Config",
        kind="AutoModelForImageTextToText",
        text_config={"model_type": "mistral", "head_dim": 32},
        vision_config={
            "model_type": "pixtral",
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": 56,
            "patch_size": 14,
        },
    ),
    "llama4": case(
        "Llama4TextConfig",
        num_hidden_layers=5,  # the fourth has no rotary embedding, and sees all tokens
        intermediate_size=48,
        intermediate_size_mlp=96,
        num_local_experts=4,
        head_dim=16,
        interleave_moe_layer_step=1,
    ),
}
