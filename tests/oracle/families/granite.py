"""The cases of IBM's Granite 4, and Bamba."""

from __future__ import annotations

from typing import Any

from case import case

RAW: dict[str, Any] = {}
CASES = {
    "granite4-vision": case(
        "Granite4VisionConfig",
        library=5,
        kind="AutoModelForImageTextToText",
        text_config={"architectures": ["GraniteForCausalLM"], "num_hidden_layers": 4},
        vision_config={
            "model_type": "siglip_vision_model",
            "hidden_size": 64,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": 56,
            "patch_size": 14,
        },
        downsample_rate="1/2",
        deepstack_layer_map=[[-1, 0], [0, -1]],
        spatial_target_layers=[2],
    ),
    "granitemoe-shared": case(
        "GraniteMoeSharedConfig",
        num_local_experts=4,
        num_experts_per_tok=2,
        shared_intermediate_size=48,
    ),
    "granitehybrid": case(
        "GraniteMoeHybridConfig",
        layer_types=["mamba", "attention", "mamba"],
        num_local_experts=4,
        num_experts_per_tok=2,
        shared_intermediate_size=48,
        mamba_n_heads=8,
        mamba_d_head=16,
        mamba_d_state=16,
        mamba_n_groups=1,
        mamba_expand=2,
        embedding_multiplier=2.0,
        logits_scaling=4.0,
        residual_multiplier=0.5,
        attention_multiplier=0.125,
    ),
    "granitehybrid-dense": case(
        "GraniteMoeHybridConfig",
        layer_types=["mamba", "attention", "mamba"],
        num_local_experts=0,
        num_experts_per_tok=0,
        shared_intermediate_size=96,
        mamba_n_heads=8,
        mamba_d_head=16,
        mamba_d_state=16,
        mamba_n_groups=1,
        mamba_expand=2,
    ),
    "granite4-attention": case(
        "GraniteMoeHybridConfig",
        layer_types=["attention"] * 3,
        position_embedding_type="rope",
        num_local_experts=0,
        num_experts_per_tok=0,
        shared_intermediate_size=96,
        mamba_n_heads=8,
        mamba_d_head=16,
        mamba_d_state=16,
        mamba_n_groups=1,
        mamba_expand=2,
    ),
    "bamba": case(
        "BambaConfig",
        attn_rotary_emb=8,
        otherwise="the order of rows is that of a whole head, but half of it is rotated",
        attn_layer_indices=[1],
        mamba_n_heads=8,
        mamba_d_head=16,
        mamba_d_state=16,
        mamba_n_groups=1,
        mamba_expand=2,
    ),
}
