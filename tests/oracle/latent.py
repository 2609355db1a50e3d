"""What the cases with latent attention, experts or prediction layers share."""

from __future__ import annotations

LATENT = {
    "num_key_value_heads": 4, "kv_lora_rank": 16, "q_lora_rank": 24, "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8, "v_head_dim": 12,
}  # fmt: skip
SPARSE = {
    "n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
    "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "routed_scaling_factor": 1.5,
    "norm_topk_prob": True, "scoring_func": "sigmoid",
}  # fmt: skip
EXPERTS = 6

LayerShapes = dict[str, tuple[int, ...]]


def latent_layer() -> LayerShapes:
    """Return the tensors of latent attention, with `LATENT`."""
    return {
        "self_attn.q_a_proj.weight": (24, 64), "self_attn.q_a_layernorm.weight": (24,),
        "self_attn.q_b_proj.weight": (96, 24), "self_attn.kv_a_proj_with_mqa.weight": (24, 64),
        "self_attn.kv_a_layernorm.weight": (16,), "self_attn.kv_b_proj.weight": (112, 16),
        "self_attn.o_proj.weight": (64, 48),
    }  # fmt: skip


def indexed() -> LayerShapes:
    """Return the tensors of an indexer with four heads of 64, as few as llama.cpp computes."""
    return {
        "self_attn.indexer.wq_b.weight": (256, 24), "self_attn.indexer.wk.weight": (64, 64),
        "self_attn.indexer.k_norm.weight": (64,), "self_attn.indexer.k_norm.bias": (64,),
        "self_attn.indexer.weights_proj.weight": (4, 64),
    }  # fmt: skip


def sparse() -> LayerShapes:
    """Return the tensors of routed and shared experts, with `SPARSE`."""
    shapes = {"gate_proj": (32, 64), "up_proj": (32, 64), "down_proj": (64, 32)}
    return {
        "mlp.gate.weight": (6, 64), "mlp.gate.e_score_correction_bias": (6,),
        **{f"mlp.shared_experts.{name}.weight": shape for name, shape in shapes.items()},
        **{
            f"mlp.experts.{x}.{name}.weight": shape
            for x in range(EXPERTS) for name, shape in shapes.items()
        },
    }  # fmt: skip


def predicting(layer: int, attention: LayerShapes) -> LayerShapes:
    """Return the tensors of a layer that predicts one more token."""
    names = {
        "eh_proj.weight": (64, 128), "enorm.weight": (64,), "hnorm.weight": (64,),
        "shared_head.norm.weight": (64,), "shared_head.head.weight": (416, 64),
        "embed_tokens.weight": (416, 64), "input_layernorm.weight": (64,),
        "post_attention_layernorm.weight": (64,), **attention, **sparse(),
    }  # fmt: skip
    return {f"model.layers.{layer}.{name}": shape for name, shape in names.items()}
