"""The cases of Families with one or two classes each."""

from __future__ import annotations

from typing import Any

from case import case

RAW: dict[str, Any] = {}
CASES = {
    "dots1": case(
        "Dots1Config",
        num_key_value_heads=4,
        moe_intermediate_size=32,
        n_routed_experts=4,
        num_experts_per_tok=2,
        n_shared_experts=2,
        first_k_dense_replace=1,
        head_dim=16,
        n_group=1,
        topk_group=1,
        scoring_func="sigmoid",
        routed_scaling_factor=2.5,
        norm_topk_prob=True,
    ),
    "arcee": case("ArceeConfig"),
    "gpt-bigcode": case(
        "GPTBigCodeConfig", n_embd=64, n_layer=3, n_head=4, n_positions=512, n_inner=256
    ),
    "chameleon": case(
        "ChameleonConfig",
        otherwise="all heads get the norms of the first",
        num_key_value_heads=4,
        kind="AutoModelForImageTextToText",
        vq_config={
            "resolution": 32,
            "base_channels": 32,
            "embed_dim": 16,
            "num_embeddings": 16,
            "latent_channels": 16,
            "channel_multiplier": [1, 1],
            "num_res_blocks": 1,
        },
        vocabulary_map={"<image>": 3, **{f"IMGIMG{chr(65 + i)}Z": 300 + i for i in range(16)}},
    ),
}
