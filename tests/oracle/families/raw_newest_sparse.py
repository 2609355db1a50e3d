"""The cases of models with experts of 2025 and 2026, with the names of their publishers."""

from __future__ import annotations

from typing import Any

from case import case
from raw_shapes import ATTENTION, ENDS, FEED_FORWARD, NORMS, Names, at, heads, raw

KINDS = ["full_attention", "sliding_attention", "sliding_attention"]
SIZES = {"gate_proj": (32, 64), "up_proj": (32, 64), "down_proj": (64, 32)}
SHARED = {f"{name}.weight": shape for name, shape in SIZES.items()}
STACKED = {f"{name}.weight": (4, *shape) for name, shape in SIZES.items()}


def below(prefix: str, names: Names) -> Names:
    """Return the names, each below a prefix."""
    return {f"{prefix}{name}": shape for name, shape in names.items()}


def attention(queries: int, keys: int, values: int) -> Names:
    """Return the matrices of attention with so many rows of each kind."""
    shapes = {"q": (queries, 64), "k": (keys, 64), "v": (values, 64)}
    return {f"model.layers.{{i}}.self_attn.{n}_proj.weight": s for n, s in shapes.items()}


CASES: dict[str, Any] = {
    "hy-v3": case(
        "HYV3Config", library=5, num_experts=4, num_experts_per_tok=2, num_shared_experts=1,
        moe_intermediate_size=32, head_dim=16, mlp_layer_types=["dense", "sparse", "sparse"],
    ),
}  # fmt: skip
RAW = {
    "minimax-m3": raw(
        "MiniMaxM3SparseForCausalLM",
        ENDS | NORMS | ATTENTION | heads(16) | at([0], FEED_FORWARD)
        | at([1, 2], {
            "model.layers.{i}.block_sparse_moe.gate.weight": (4, 64),
            "model.layers.{i}.block_sparse_moe.e_score_correction_bias": (4,),
            **{
                f"model.layers.{{i}}.block_sparse_moe.experts.{{x}}.{n}.weight": shape
                for n, shape in (("w1", (32, 64)), ("w2", (64, 32)), ("w3", (32, 64)))
            },
            **below("model.layers.{i}.block_sparse_moe.shared_experts.", SHARED),
            "model.layers.{i}.self_attn.index_q_proj.weight": (32, 64),
            "model.layers.{i}.self_attn.index_k_proj.weight": (16, 64),
            "model.layers.{i}.self_attn.index_q_norm.weight": (16,),
            "model.layers.{i}.self_attn.index_k_norm.weight": (16,),
        }),
        experts=4, model_type="minimax_m3_raw", head_dim=16, rotary_dim=8, num_local_experts=4,
        num_experts_per_tok=2, n_shared_experts=1, routed_scaling_factor=2.0,
        scoring_func="sigmoid", intermediate_size=32, dense_intermediate_size=96,
        moe_layer_freq=[0, 1, 1],
        sparse_attention_config={
            "sparse_num_index_heads": 2, "sparse_index_dim": 16, "sparse_topk_blocks": 4,
            "sparse_block_size": 16, "sparse_local_block": 1,
        },
    ),
    "step35": raw(
        "Step3p5ForCausalLM",
        ENDS | NORMS | heads(16)
        | at([0], attention(64, 32, 32) | {
            "model.layers.{i}.self_attn.o_proj.weight": (64, 64),
            "model.layers.{i}.self_attn.g_proj.weight": (4, 64),
        })
        | at([1, 2, 3], attention(96, 48, 48) | {
            "model.layers.{i}.self_attn.o_proj.weight": (64, 96),
            "model.layers.{i}.self_attn.g_proj.weight": (6, 64),
        })
        | at([0, 3], FEED_FORWARD)
        | at([1, 2], {
            "model.layers.{i}.moe.gate.weight": (4, 64), "model.layers.{i}.moe.router_bias": (4,),
            **below("model.layers.{i}.moe.", STACKED),
            **below("model.layers.{i}.share_expert.", SHARED),
        })
        | at([3], {
            **NORMS, **heads(16),
            "model.layers.{i}.eh_proj.weight": (64, 128), "model.layers.{i}.enorm.weight": (64,),
            "model.layers.{i}.hnorm.weight": (64,),
            "model.layers.{i}.transformer.shared_head.norm.weight": (64,),
            "model.layers.{i}.transformer.shared_head.output.weight": (416, 64),
        }),
        model_type="step3p5", num_key_value_heads=None, num_attention_groups=2, head_dim=16,
        attention_other_setting={"num_attention_heads": 6, "num_attention_groups": 3},
        layer_types=[*KINDS, "sliding_attention"],
        partial_rotary_factors=[0.5, 1.0, 1.0, 1.0],
        rope_scaling={
            "rope_type": "llama3", "factor": 2.0, "original_max_position_embeddings": 64,
            "low_freq_factor": 1.0, "high_freq_factor": 32.0,
        },
        rope_theta=[5000000.0, 10000.0, 10000.0, 10000.0], sliding_window=64,
        moe_num_experts=4, moe_top_k=2, moe_intermediate_size=32, share_expert_dim=32,
        moe_router_activation="sigmoid", moe_router_scaling_factor=3.0, norm_expert_weight=True,
        moe_layers_enum="1,2", num_nextn_predict_layers=1, swiglu_limits=[None, 7.0, 7.0],
        swiglu_limits_shared=[0.0, 0.0, 16.0], use_head_wise_attn_gate=True,
    ),
    "mimo-v2": raw(
        "MiMoV2FlashForCausalLM",
        ENDS | NORMS
        | at([0], attention(96, 48, 16) | FEED_FORWARD
             | {"model.layers.{i}.self_attn.o_proj.weight": (64, 32)})
        | at([1, 2], attention(96, 96, 32) | {
            "model.layers.{i}.self_attn.o_proj.weight": (64, 32),
            "model.layers.{i}.self_attn.attention_sink_bias": (4,),
            "model.layers.{i}.mlp.gate.weight": ((4, 64), "small"),
            "model.layers.{i}.mlp.gate.e_score_correction_bias": (4,),
            **below("model.layers.{i}.mlp.experts.{x}.", SHARED),
        })
        | {
            name.replace("model.layers.{i}", f"model.mtp.layers.{n}"): shape
            for n in range(3)
            for name, shape in {
                **attention(96, 96, 32), **FEED_FORWARD, **NORMS,
                "model.layers.{i}.self_attn.o_proj.weight": (64, 32),
                "model.layers.{i}.self_attn.attention_sink_bias": (4,),
                "model.layers.{i}.eh_proj.weight": (64, 128),
                "model.layers.{i}.enorm.weight": (64,), "model.layers.{i}.hnorm.weight": (64,),
                "model.layers.{i}.final_layernorm.weight": (64,),
            }.items()
        },
        experts=4, computed=5, model_type="mimo_v2_flash", num_key_value_heads=2,
        swa_num_key_value_heads=4,
        swa_num_attention_heads=4, head_dim=24, swa_head_dim=24, v_head_dim=8, swa_v_head_dim=8,
        topk_method="noaux_tc", scoring_func="sigmoid", n_routed_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=32, hybrid_layer_pattern=[0, 1, 1], sliding_window=64,
        partial_rotary_factor=0.334, swa_rope_theta=10000.0, rope_theta=5000000.0,
        layernorm_epsilon=1e-5, rms_norm_eps=None, attention_value_scale=0.7, n_group=1,
        topk_group=1, norm_topk_prob=True, moe_layer_freq=[0, 1, 1],
        add_swa_attention_sink_bias=True, add_full_attention_sink_bias=False,
    ),
    "arctic": raw(
        "ArcticForCausalLM",
        {
            "model.embed_tokens.weight": (400, 64), "model.norm.weight": (64,),
            "lm_head.weight": (400, 64), **NORMS, **ATTENTION,
            "model.layers.{i}.residual_layernorm.weight": (64,),
            **{f"model.layers.{{i}}.residual_mlp.w{n}.weight": (64, 64) for n in (1, 2, 3)},
            "model.layers.{i}.block_sparse_moe.gate.weight": (4, 64),
            **{
                f"model.layers.{{i}}.block_sparse_moe.experts.{{x}}.{n}.weight": shape
                for n, shape in (("w1", (96, 64)), ("w2", (64, 96)), ("w3", (96, 64)))
            },
        },
        vocabulary="arctic", experts=4, model_type="arctic", vocab_size=400, num_local_experts=4,
        num_experts_per_tok=2, use_residual=True, moe_layer_frequency=1, unk_token_id=0,
        bos_token_id=398, eos_token_id=399, pad_token_id=None,
    ),
}  # fmt: skip
