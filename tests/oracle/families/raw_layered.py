"""The cases of classes whose layers differ in more than one number."""

from __future__ import annotations

from typing import Any

from case import YARN, case
from latent import LATENT
from raw_shapes import ENDS, FEED_FORWARD, NORMS, Names, at, raw

ALPHA = {
    f"layernorm_{kind}_alpha": 3.5 for kind in ("full_attention", "linear_attention", "mlp")
} | {f"layernorm_{kind}_beta": 1.0 for kind in ("full_attention", "linear_attention", "mlp")}
CASES = {
    "minimax-01": case(
        "MiniMaxConfig", architecture="MiniMaxText01ForCausalLM", library=5, empty_rows=3,
        vocabulary="template",
        only_parameters=True, tie_word_embeddings=False,
        num_hidden_layers=9, head_dim=16, rotary_dim=16, num_local_experts=4,
        num_experts_per_tok=2, saved={"max_shard_size": "1MB"},
        layer_types=[("linear" if (n + 1) % 8 else "full") + "_attention" for n in range(9)],
        full_attn_alpha_factor=3.5, linear_attn_alpha_factor=3.5, mlp_alpha_factor=3.5, **ALPHA,
    ),
    "mistral4": case(
        "Mistral3Config", kind="AutoModelForImageTextToText", library=5,
        text_config={
            "model_type": "mistral4", **LATENT, "n_routed_experts": 6, "num_experts_per_tok": 2,
            "moe_intermediate_size": 32, "n_shared_experts": 1, "first_k_dense_replace": 1,
            "rope_parameters": YARN | {
                "original_max_position_embeddings": 256, "factor": 2.0,
                "rope_theta": 10000.0, "mscale": 1.0, "mscale_all_dim": 1.0,
                "llama_4_scaling_beta": 0.1,
            },
        },
        vision_config={
            "model_type": "pixtral", "hidden_size": 32, "intermediate_size": 48,
            "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 56, "patch_size": 14,
        },
    ),
}  # fmt: skip


def block(heads_in_group: int | None, multiplier: float | None, *, linear: bool = False) -> dict:
    """Return what config.json says of one of DeciLM's blocks."""
    return {
        "attention": {"n_heads_in_group": heads_in_group, "replace_with_linear": linear,
                      "no_op": heads_in_group is None and not linear},
        "ffn": {"ffn_mult": multiplier, "no_op": multiplier is None},
    }  # fmt: skip


def attention(rows: int) -> Names:
    """Return the tensors of attention with so many rows of keys."""
    return {
        "model.layers.{i}.input_layernorm.weight": (64,),
        "model.layers.{i}.self_attn.q_proj.weight": (64, 64),
        "model.layers.{i}.self_attn.k_proj.weight": (rows, 64),
        "model.layers.{i}.self_attn.v_proj.weight": (rows, 64),
        "model.layers.{i}.self_attn.o_proj.weight": (64, 64),
    }


def feed_forward(size: int) -> Names:
    """Return the tensors of a feed-forward of a size."""
    return {
        "model.layers.{i}.post_attention_layernorm.weight": (64,),
        **{name: tuple(size if n == 96 else n for n in shape)
           for name, shape in FEED_FORWARD.items()},
    }  # fmt: skip


RAW: dict[str, Any] = {
    "deci": raw(
        "DeciLMForCausalLM",
        ENDS | NORMS | FEED_FORWARD | at([0], attention(64)) | at([1, 2], attention(16)),
        vocabulary="merged", model_type="deci", num_key_value_heads_per_layer=[4, 1, 1],
        num_key_value_heads=None, rope_theta=10000,
    ),
    "deci-blocks": raw(
        "DeciLMForCausalLM",
        ENDS | at([0], attention(32)) | at([0, 2], feed_forward(256)) | at([1], feed_forward(512))
        | at([1], {
            "model.layers.{i}.input_layernorm.weight": (64,),
            "model.layers.{i}.self_attn.linear_attn.weight": (64, 64),
        })
        | at([3], attention(16)),
        vocabulary="merged", model_type="nemotron-nas", num_hidden_layers=4,
        num_key_value_heads=None, intermediate_size=None,
        rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                      "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
        block_configs=[
            block(2, 5.5), block(None, 7.0, linear=True), block(None, 5.25), block(4, None),
        ],
    ),
}  # fmt: skip
