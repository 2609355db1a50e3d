"""The cases of models with Kimi's delta attention, and of others with latent attention."""

from __future__ import annotations

from typing import Any

from latent import LATENT, indexed, latent_layer
from raw_shapes import ENDS, FEED_FORWARD, NORMS, Names, at, raw

CASES: dict[str, Any] = {}
SIZES = {"gate_proj": (32, 64), "up_proj": (32, 64), "down_proj": (64, 32)}
OWN = {
    "num_key_value_heads": 4,
    **{k: v for k, v in LATENT.items() if k != "num_key_value_heads"},
}


def below(prefix: str, names: Names) -> Names:
    """Return the names of a layer, each below a prefix."""
    return {f"{prefix}{name}": shape for name, shape in names.items()}


def delta(name: str, *, is_low_rank: bool) -> Names:
    """Return the tensors of delta attention with four heads of 16."""
    gates = (
        {"f_a_proj.weight": (16, 64), "f_b_proj.weight": (64, 16), "g_a_proj.weight": (16, 64),
         "g_b_proj.weight": (64, 16)}
        if is_low_rank
        else {"f_proj.weight": (64, 64), "g_proj.weight": (64, 64)}
    )  # fmt: skip
    return below(f"model.layers.{{i}}.{name}.", {
        **{f"{n}_proj.weight": (64, 64) for n in ("q", "k", "v", "o")},
        **{f"{n}_conv1d.weight": (64, 1, 4) for n in ("q", "k", "v")},
        "b_proj.weight": (4, 64), "dt_bias": (64,), "o_norm.weight": (16,), **gates,
    })  # fmt: skip


def experts(prefix: str, names: dict[str, str]) -> Names:
    """Return four experts with the names of their three matrices."""
    return {f"{prefix}{{x}}.{names[kind]}.weight": shape for kind, shape in SIZES.items()}


PLAIN = {name: name for name in SIZES}
SHORT = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
SHARED = {f"{name}.weight": shape for name, shape in SIZES.items()}
ATTENTION = below("model.layers.{i}.", latent_layer())
RAW = {
    "kimi-linear": raw(
        "KimiLinearForCausalLM",
        ENDS | NORMS | at([0], FEED_FORWARD)
        | at([1], {n: shape for n, shape in ATTENTION.items() if ".q_" not in n})
        | at([1], {"model.layers.{i}.self_attn.q_proj.weight": (96, 64)})
        | at([0, 2], {
            **delta("self_attn", is_low_rank=True),
            "model.layers.{i}.self_attn.A_log": (1, 1, 4, 1),
        })
        | at([1, 2], {
            "model.layers.{i}.block_sparse_moe.gate.weight": ((4, 64), "small"),  # no equal scores
            "model.layers.{i}.block_sparse_moe.gate.e_score_correction_bias": (4,),
            **experts("model.layers.{i}.block_sparse_moe.experts.", SHORT),
            **below("model.layers.{i}.block_sparse_moe.shared_experts.", SHARED),
        }),
        experts=4, computed=5, model_type="kimi_linear", **{**OWN, "q_lora_rank": None},
        num_experts=4, num_experts_per_token=2, num_shared_experts=1,
        moe_intermediate_size=32, first_k_dense_replace=1,
        routed_scaling_factor=2.5, moe_renormalize=True, moe_router_activation_func="sigmoid",
        num_expert_group=1, topk_group=1, moe_layer_freq=1, mla_use_nope=True, head_dim=24,
        max_position_embeddings=None, model_max_length=512,
        linear_attn_config={
            "full_attn_layers": [2], "kda_layers": [1, 3], "head_dim": 16, "num_heads": 4,
            "short_conv_kernel_size": 4,
        },
    ),
    "ling3": raw(
        "BailingMoeV3ForCausalLM",
        {
            "model.word_embeddings.weight": (416, 64), "model.norm.weight": (64,),
            "lm_head.weight": (416, 64), **NORMS,
        }
        | at([3], {
            "model.layers.{i}.input_layernorm.weight": (64,),
            "model.layers.{i}.post_attention_layernorm.weight": (64,),
            "model.layers.{i}.eh_proj.weight": (64, 128), "model.layers.{i}.enorm.weight": (64,),
            "model.layers.{i}.hnorm.weight": (64,),
            "model.layers.{i}.final_layernorm.weight": (64,),
        })
        | at([0], FEED_FORWARD)
        | at([1, 2, 3], {
            **{n.replace("self_attn", "attention").replace("o_proj", "dense"): shape
               for n, shape in ATTENTION.items()},
            "model.layers.{i}.attention.g_proj.weight": (4, 64),
        })
        | at([0], {
            **delta("attention", is_low_rank=False), "model.layers.{i}.attention.A_log": (4,),
        })
        | at([1, 2, 3], {
            "model.layers.{i}.mlp.gate.weight": (4, 64),
            "model.layers.{i}.mlp.gate.expert_bias": (4,),
            **experts("model.layers.{i}.mlp.experts.", PLAIN),
            **below("model.layers.{i}.mlp.shared_experts.", SHARED),
        }),
        experts=4, model_type="bailing_hybrid", **OWN, num_experts=4, num_experts_per_tok=2,
        num_shared_experts=1, moe_intermediate_size=32, moe_shared_expert_intermediate_size=32,
        first_k_dense_replace=1, routed_scaling_factor=2.5, norm_topk_prob=True,
        score_function="sigmoid", n_group=1, topk_group=1, layer_group_size=2, head_dim=16,
        num_nextn_predict_layers=1, short_conv_kernel_size=4, no_kda_lora=True,
        kda_safe_gate=True, kda_lower_bound=-5.0, gated_attention_proj_granularity_type="head_wise",
        expert_swiglu_limit_list=[None, 7.0, 7.0],
    ),
    "glm5-next": raw(
        "Glm5NextForConditionalGeneration",
        ENDS | NORMS | at([0], FEED_FORWARD)
        | at([1], {
            **ATTENTION, **below("model.layers.{i}.self_attn.", {
                "q_b_proj.weight": (96, 24), "kv_a_proj_with_mqa.weight": (16, 64),
                "o_proj.weight": (64, 16),
            }),
            **below("model.layers.{i}.", indexed()),
            "model.layers.{i}.self_attn.indexer.index_kpool_compress_ape": (4, 64),
            "model.layers.{i}.self_attn.indexer.index_kpool_compress_gate": (64, 64),
        })
        | at([0, 2], {
            **delta("self_attn", is_low_rank=True), "model.layers.{i}.self_attn.A_log": (4,),
        })
        | at([1, 2], {
            "model.layers.{i}.mlp.gate.weight": (4, 64),
            "model.layers.{i}.mlp.gate.e_score_correction_bias": (4,),
            **experts("model.layers.{i}.mlp.experts.", PLAIN),
            **below("model.layers.{i}.mlp.shared_experts.", SHARED),
        })
        | {
            f"model.layers.{{i}}.hc_{n}_{kind}": shape
            for n in ("attn", "ffn")
            for kind, shape in (("fn", (24, 256)), ("base", (24,)), ("scale", (3,)))
        },
        vocabulary="glm", experts=4, model_type="glm5_next", **{**OWN, "qk_rope_head_dim": 0,
        "qk_nope_head_dim": 24, "v_head_dim": 4},
        n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=32,
        first_k_dense_replace=1, routed_scaling_factor=2.5, norm_topk_prob=True,
        scoring_func="sigmoid", n_group=1, topk_group=1, num_nextn_predict_layers=0,
        mla_use_nope=True, index_n_heads=4, index_head_dim=64, index_topk=8, index_kpool=4,
        index_kpool_always_select_tail=True, hc_mult=4, hc_eps=1e-6, hc_sinkhorn_iters=20,
        mhc=True, swiglu_limit=10.0,
        layer_types=["linear_attention", "full_attention", "linear_attention"],
        indexer_types=["full", "full", "full"],
        linear_attn_config={
            "head_dim": 16, "num_heads": 4, "short_conv_kernel_size": 4, "gate_lower_bound": -5.0,
        },
    ),
    "hy-v4": raw(
        "HYV4ForCausalLM",
        ENDS | NORMS | at([0], FEED_FORWARD) | ATTENTION
        | {
            "model.layers.{i}.self_attn.gate_proj.weight": (48, 64),
            "model.layers.{i}.self_attn.learnable_sink_param": (4,),
            "model.hc_head.hc_head_fn": (2, 128), "model.hc_head.hc_head_base": (2,),
            "model.hc_head.hc_head_scale": (1,), "model.mtp_layers.0.enorm.weight": (64,),
            **{
                f"model.layers.{{i}}.hc_{n}_layer.hc_pre.hc_{kind}": shape
                for n in ("attn", "mlp")
                for kind, shape in (("fn", (4, 128)), ("base", (4,)), ("scale", (2,)))
            },
        }
        | at([0, 2], below("model.layers.{i}.", indexed()))
        | at([1, 2], {
            "model.layers.{i}.mlp.gate.weight": (4, 64),
            "model.layers.{i}.mlp.gate.e_score_correction_bias": (4,),
            "model.layers.{i}.mlp.experts.gate_up_proj": (4, 64, 64),
            "model.layers.{i}.mlp.experts.down_proj": (4, 64, 32),
            **below("model.layers.{i}.mlp.shared_experts.", SHARED),
        }),
        model_type="hy_v4_raw", **OWN, n_routed_experts=4, num_experts_per_tok=2,
        n_shared_experts=1, moe_intermediate_size=32, routed_scaling_factor=2.5,
        norm_topk_prob=True, n_group=1, topk_group=1, num_nextn_predict_layers=1,
        mlp_layer_types=["dense", "sparse", "sparse"], indexer_types=["full", "shared", "full"],
        index_n_heads=4, index_head_dim=64, index_topk=8, hc_mult=2, hc_eps=1e-6,
        hc_magnitude=2.0, swiglu_limit=10.0, enable_lm_head_fp32=True,
    ),
}  # fmt: skip
