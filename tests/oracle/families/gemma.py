"""The cases of Gemma 3n and 4."""

from __future__ import annotations

from typing import Any

from case import case

RAW: dict[str, Any] = {}
CASES = {
    "gemma3n": case(
        "Gemma3nTextConfig",
        library=5,
        otherwise="llama.cpp reads 256 numbers for each layer and token, whatever the file says",
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
    "gemma4": case(
        "Gemma4TextConfig",
        library=5,
        vocabulary="merged",
        num_hidden_layers=4,
        head_dim=16,
        global_head_dim=32,
        num_global_key_value_heads=1,
        hidden_size_per_layer_input=8,
        vocab_size_per_layer_input=416,
        num_kv_shared_layers=0,
        sliding_window=64,
        layer_types=["sliding_attention", "full_attention"] * 2,
        final_logit_softcapping=30.0,
    ),
    "gemma4-moe": case(
        "Gemma4TextConfig",
        otherwise="a difference of 4 %, not explained yet",
        library=5,
        vocabulary="merged",
        num_hidden_layers=4,
        head_dim=16,
        global_head_dim=32,
        num_global_key_value_heads=1,
        hidden_size_per_layer_input=0,
        num_kv_shared_layers=0,
        sliding_window=64,
        enable_moe_block=True,
        num_experts=4,
        top_k_experts=2,
        moe_intermediate_size=32,
        attention_k_eq_v=True,
        layer_types=["sliding_attention", "full_attention"] * 2,
    ),
    "gemma4-shared": case(
        "Gemma4TextConfig",
        otherwise="a difference of 5 %, not explained yet",
        library=5,
        vocabulary="merged",
        num_hidden_layers=6,
        head_dim=16,
        global_head_dim=32,
        hidden_size_per_layer_input=8,
        vocab_size_per_layer_input=416,
        num_kv_shared_layers=2,
        sliding_window=64,
        use_double_wide_mlp=True,
        layer_types=["sliding_attention", "full_attention"] * 3,
    ),
}
