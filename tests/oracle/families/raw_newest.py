"""The cases of dense models of 2025 and 2026 whose code is in neither version of transformers."""

from __future__ import annotations

from typing import Any

from raw_shapes import ATTENTION, ENDS, EXPERTS, FEED_FORWARD, LLAMA, NORMS, Names, at, heads, raw

CASES: dict[str, Any] = {}
ROUTED = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
KINDS = ["sliding_attention", "full_attention", "sliding_attention"]


def with_biases(names: Names, *without: str) -> Names:
    """Return the names with a bias for each, but for those without."""
    biases = {n.replace("weight", "bias"): (shape[0],) for n, shape in names.items()}
    return names | {n: s for n, s in biases.items() if not any(word in n for word in without)}


RAW = {
    "rnd1": raw(
        "RND1", ENDS | NORMS | ATTENTION | heads(16) | EXPERTS, experts=4, model_type="rnd1",
        head_dim=16, norm_topk_prob=True, mask_token_id=5, **ROUTED,
    ),
    "rugpt3xl": raw(
        "RuGPT3XLForCausalLM",
        with_biases(
            {
                n: (64, 64) if "self_attn" in n else tuple(256 if x == 96 else x for x in shape)
                for n, shape in LLAMA.items() if "gate_proj" not in n
            },
            "embed", "lm_head",
        ) | {"model.embed_positions.weight": (512, 64)},
        model_type="rugpt3xl", intermediate_size=256, num_key_value_heads=None, rms_norm_eps=None,
        layer_norm_eps=1e-5, hidden_act="gelu", rope_theta=None,
    ),
    "step3-vl": raw(
        "StepVLForConditionalGeneration", LLAMA | heads(16), model_type="step_robotics",
        head_dim=16,
    ),
    "maple": raw(
        "MapleForCausalLM", ENDS | NORMS | ATTENTION | heads(16) | EXPERTS, experts=4,
        model_type="maple", head_dim=16, norm_topk_prob=True, nope_on_global_attention=True,
        sliding_window=64, layer_types=KINDS, partial_rotary_factor=0.5, **ROUTED,
    ),
    "spark": raw(
        "Spark2_5ForCausalLM",
        ENDS | NORMS | FEED_FORWARD | {
            "model.layers.{i}.self_attn.q_k_v_proj.weight": (128, 64),
            "model.layers.{i}.self_attn.o_proj.weight": (64, 64),
            "model.layers.{i}.self_attn.g_proj.weight": (4, 64),
        }, model_type="spark2_5", head_dim=16, sliding_window=64, layer_types=KINDS,
        gate_attn_act_mode="sigmoid", headwise_attn_output_gate=True, hidden_act="gelu",
        rope_theta=None,
        rope_parameters={
            "full_attention": {
                "rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.5,
            },
            "sliding_attention": {
                "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 1.0,
            },
        },
    ),
    "talkie": raw(
        "TalkieForCausalLM",
        {
            "model.embed.weight": (416, 64), "lm_head": (416, 64), "lm_head_gain.w_g": (1,),
            **{f"model.blocks.{{i}}.attn.attn_{n}.weight": (64, 64)
               for n in ("query", "key", "value", "resid")},
            "model.blocks.{i}.attn.head_gain.head_g": (4,),
            "model.blocks.{i}.attn_gain.a_g": (1,), "model.blocks.{i}.mlp_gain.a_g": (1,),
            "model.blocks.{i}.embed_skip.a_g": (1,),
            "model.blocks.{i}.mlp.mlp_gate.weight": (96, 64),
            "model.blocks.{i}.mlp.mlp_linear.weight": (96, 64),
            "model.blocks.{i}.mlp.mlp_resid.weight": (64, 96),
        },
        model_type="talkie", head_dim=16, num_key_value_heads=None, rms_norm_eps=None,
        hidden_act=None,
    ),
    "jais": raw(
        "JAISLMHeadModel",
        {
            "transformer.wte.weight": (416, 64), "lm_head.weight": (416, 64),
            **with_biases({
                "transformer.ln_f.weight": (64,),
                "transformer.h.{i}.ln_1.weight": (64,), "transformer.h.{i}.ln_2.weight": (64,),
            }),
            "transformer.h.{i}.attn.c_attn.weight": (64, 192),
            "transformer.h.{i}.attn.c_attn.bias": (192,),
            "transformer.h.{i}.attn.c_proj.weight": (64, 64),
            "transformer.h.{i}.attn.c_proj.bias": (64,),
            "transformer.h.{i}.mlp.c_fc.weight": (64, 96), "transformer.h.{i}.mlp.c_fc.bias": (96,),
            "transformer.h.{i}.mlp.c_fc2.weight": (64, 96),
            "transformer.h.{i}.mlp.c_fc2.bias": (96,),
            "transformer.h.{i}.mlp.c_proj.weight": (96, 64),
            "transformer.h.{i}.mlp.c_proj.bias": (64,),
        },
        model_type="jais", n_embd=64, n_layer=3, n_head=4, n_positions=512, n_inner=96,
        layer_norm_epsilon=1e-5, activation_function="swiglu", position_embedding_type="alibi",
        mup_embeddings_scale=9.1705785388303, mup_output_alpha=1.09518349815769,
        mup_width_scale=0.25, hidden_size=None, num_hidden_layers=None, num_attention_heads=None,
        num_key_value_heads=None, intermediate_size=None, max_position_embeddings=None,
        hidden_act=None, rms_norm_eps=None, rope_theta=None,
    ),
    "grok": raw(
        "GrokForCausalLM",
        {
            "transformer.in_out_embed.weight": (416, 64), "transformer.rms_norm.weight": (64,),
            **{
                f"transformer.decoder_layer.{{i}}.rms_norm{n}.weight": (64,)
                for n in ("", "_1", "_2", "_3")
            },
            **{
                f"transformer.decoder_layer.{{i}}.multi_head_attention.{n}.weight": shape
                for n, shape in {
                    "query": (64, 64), "key": (32, 64), "value": (32, 64), "linear": (64, 64),
                }.items()
            },
            "transformer.decoder_layer.{i}.router.weight": (4, 64),
            "transformer.decoder_layer.{i}.moe.{x}.linear.weight": (96, 64),
            "transformer.decoder_layer.{i}.moe.{x}.linear_v.weight": (96, 64),
            "transformer.decoder_layer.{i}.moe.{x}.linear_1.weight": (64, 96),
        },
        vocabulary="pieces", experts=4, model_type="grok-1", num_local_experts=4,
        num_experts_per_tok=2, embedding_multiplier_scale=78.38, output_multiplier_scale=0.577,
        attn_output_multiplier=0.08838, hidden_act="gelu",
    ),
    "grok2": raw(
        "Grok1ForCausalLM",
        ENDS | ATTENTION | FEED_FORWARD | {
            **{
                f"model.layers.{{i}}.{n}_norm.weight": (64,)
                for n in ("pre_attn", "post_attn", "pre_moe", "post_moe")
            },
            "model.layers.{i}.block_sparse_moe.gate.weight": (4, 64),
            "model.layers.{i}.block_sparse_moe.experts.{x}.w1.weight": (32, 64),
            "model.layers.{i}.block_sparse_moe.experts.{x}.w2.weight": (64, 32),
            "model.layers.{i}.block_sparse_moe.experts.{x}.w3.weight": (32, 64),
        },
        vocabulary="pieces", experts=4, model_type="git", num_local_experts=4,
        num_experts_per_tok=2, embedding_multiplier_scale=90.5, output_multiplier_scale=0.5,
        hidden_act="gelu", head_dim=16, moe_intermediate_size=32, rope_type="original",
        scaling_factor=16.0, original_max_position_embeddings=8192, extrapolation_factor=1.0,
        attn_factor=1.0, beta_fast=8, beta_slow=1, final_logit_softcapping=50,
        attn_temperature_len=1024,
    ),
    "sarvam": raw(
        "SarvamMoEForCausalLM",
        {
            "model.word_embeddings.weight": (416, 64), "model.norm.weight": (64,),
            "lm_head.weight": (416, 64), **NORMS,
            "model.layers.{i}.attention.query_key_value.weight": (128, 64),
            "model.layers.{i}.attention.dense.weight": (64, 64),
            "model.layers.{i}.attention.query_layernorm.weight": (16,),
            "model.layers.{i}.attention.key_layernorm.weight": (16,),
            **at([1, 2], {**EXPERTS, "model.layers.{i}.mlp.gate.expert_bias": (4,)}),
            **at([0], FEED_FORWARD),
            **{
                f"model.layers.{i}.mlp.shared_experts.{n}_proj.weight": shape
                for i in (1, 2)
                for n, shape in (("gate", (32, 64)), ("up", (32, 64)), ("down", (64, 32)))
            },
        },
        experts=4, model_type="sarvam_moe", head_dim=16, num_shared_experts=1,
        first_k_dense_replace=1, routed_scaling_factor=2.5, norm_topk_prob=True,
        score_function="sigmoid", n_group=1, topk_group=1, **ROUTED,
    ),
}  # fmt: skip
