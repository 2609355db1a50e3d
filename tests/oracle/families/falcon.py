"""The cases of Falcon-H1."""

from __future__ import annotations

from typing import Any

from case import case

RAW: dict[str, Any] = {}
CASES = {
    "falcon-h1": case(
        "FalconH1Config",
        head_dim=16,
        mamba_n_heads=8,
        mamba_d_head=16,
        mamba_d_ssm=128,
        mamba_d_state=16,
        mamba_n_groups=2,
        embedding_multiplier=2.5,
        lm_head_multiplier=0.5,
        key_multiplier=0.75,
        attention_in_multiplier=1.5,
        attention_out_multiplier=0.9,
        ssm_in_multiplier=1.25,
        ssm_out_multiplier=0.8,
        mlp_multipliers=[0.9, 0.7],
        ssm_multipliers=[0.5, 0.25, 0.35, 0.7, 0.8],
    ),
}
