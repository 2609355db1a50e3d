"""The cases of models of 2025 and 2026, each with one class."""

from __future__ import annotations

from typing import Any

from case import case

RAW: dict[str, Any] = {}
CASES = {
    "hrm": case(
        "HrmTextConfig", library=5, num_key_value_heads=None, head_dim=16, num_layers_per_stack=2,
        H_cycles=2, L_cycles=2, num_hidden_layers=12, embedding_scale=8.0,
    ),
    "granitemoe-swa": case(
        "GraniteMoeSWAConfig", library=5, num_local_experts=4, num_experts_per_tok=2,
        shared_intermediate_size=48, sliding_window=64,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
        embedding_multiplier=2.0, logits_scaling=4.0, residual_multiplier=0.5,
        attention_multiplier=0.125,
    ),
    "dbrx": case(
        "DbrxConfig", d_model=64, n_heads=4, n_layers=3, max_seq_len=512,
        attn_config={"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 500000.0},
        ffn_config={
            "ffn_hidden_size": 32, "moe_num_experts": 4, "moe_top_k": 2,
            "moe_normalize_expert_weights": 1.0,
        },
        hidden_size=None, intermediate_size=None, num_hidden_layers=None,
        num_attention_heads=None, num_key_value_heads=None, max_position_embeddings=None,
    ),
}  # fmt: skip
