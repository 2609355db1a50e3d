"""The cases of Qwen's models of 2025 and later."""

from __future__ import annotations

from typing import Any

from case import YARN, case

LINEAR = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16,
    "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4,
}  # fmt: skip
EXPERTS = {
    "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 48,
}  # fmt: skip
NEXT = {"head_dim": 32, "num_hidden_layers": 5, **LINEAR}
ROPE = {
    "rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.25,
    "mrope_section": [2, 1, 1], "mrope_interleaved": True,
}  # fmt: skip
EYES = {
    "depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 64,
    "num_position_embeddings": 16, "patch_size": 4,
}  # fmt: skip


def predicting(prefix: str, mlp: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Return the tensors of a layer that predicts one more token."""
    names = {
        "input_layernorm": (64,), "post_attention_layernorm": (64,),
        "self_attn.q_proj": (256, 64), "self_attn.k_proj": (64, 64), "self_attn.v_proj": (64, 64),
        "self_attn.o_proj": (64, 128), "self_attn.q_norm": (32,), "self_attn.k_norm": (32,), **mlp,
    }  # fmt: skip
    return {
        f"{prefix}mtp.fc.weight": (64, 128),
        f"{prefix}mtp.norm.weight": (64,),
        f"{prefix}mtp.pre_fc_norm_embedding.weight": (64,),
        f"{prefix}mtp.pre_fc_norm_hidden.weight": (64,),
        **{f"{prefix}mtp.layers.0.{name}.weight": shape for name, shape in names.items()},
    }


DENSE = {"mlp.gate_proj": (96, 64), "mlp.up_proj": (96, 64), "mlp.down_proj": (64, 96)}
SPARSE = {
    "mlp.gate": (6, 64), "mlp.shared_expert_gate": (1, 64),
    **{f"mlp.shared_expert.{n}_proj": (48, 64) for n in ("gate", "up")},
    "mlp.shared_expert.down_proj": (64, 48),
    **{f"mlp.experts.{x}.{n}_proj": (32, 64) for x in range(6) for n in ("gate", "up")},
    **{f"mlp.experts.{x}.down_proj": (64, 32) for x in range(6)},
}  # fmt: skip

RAW: dict[str, Any] = {}
CASES = {
    "qwen3-saved-by-5": case("Qwen3Config", head_dim=32, library=5),
    "qwen3-yarn-saved-by-5": case(
        "Qwen3Config", head_dim=32, library=5, rope_parameters=YARN | {"rope_theta": 50000.0}
    ),
    "qwen3moe-saved-by-5": case(
        "Qwen3MoeConfig", num_experts=6, num_experts_per_tok=2, moe_intermediate_size=32,
        head_dim=32, norm_topk_prob=True, library=5,
    ),
    "qwen35": case(
        "Qwen3_5TextConfig", library=5, rope_parameters=ROPE, mtp_num_hidden_layers=1,
        extra=predicting("", DENSE), **NEXT,
    ),
    "qwen35-equal-heads": case(
        "Qwen3_5TextConfig", library=5, mtp_num_hidden_layers=1, extra=predicting("", DENSE),
        **NEXT | {"linear_num_key_heads": 4, "full_attention_interval": 3, "layer_types": None},
    ),
    "qwen35-pictures": case(
        "Qwen3_5Config", library=5, kind="AutoModelForImageTextToText", vision_config=EYES,
        text_config={**NEXT, "rope_parameters": ROPE, "mtp_num_hidden_layers": 1},
        extra=predicting("model.", DENSE),
    ),
    "qwen35moe": case(
        "Qwen3_5MoeTextConfig", library=5, rope_parameters=ROPE, mtp_num_hidden_layers=1,
        extra=predicting("", SPARSE), **NEXT, **EXPERTS,
    ),
    "qwen35moe-pictures": case(
        "Qwen3_5MoeConfig", library=5, kind="AutoModelForImageTextToText", vision_config=EYES,
        text_config={**NEXT, **EXPERTS, "rope_parameters": ROPE, "mtp_num_hidden_layers": 1},
        extra=predicting("model.", SPARSE),
    ),
    "qwen3next": case(
        "Qwen3NextConfig", library=5, extra=predicting("", SPARSE),
        rope_parameters={k: v for k, v in ROPE.items() if not k.startswith("mrope")},
        **NEXT, **EXPERTS,
    ),
    "qwen3next-4": case(
        "Qwen3NextConfig", extra=predicting("", SPARSE), rope_theta=50000.0, **NEXT, **EXPERTS,
    ),
}  # fmt: skip
