"""A small checkpoint of the llama family, as tests convert it."""

from __future__ import annotations

import numpy as np

# The llama family without a tokenizer, which these tests have no need of.
ARCH = 'like = "llama"\nname = "llama"\nclasses = ["PlainForCausalLM"]\nvocabulary = "none"\n'
CONFIG = {
    "architectures": ["PlainForCausalLM"], "model_type": "llama", "hidden_size": 8,
    "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 10,
    "max_position_embeddings": 32, "rms_norm_eps": 1e-5, "hidden_act": "silu",
}  # fmt: skip
# A class with layers that predict further tokens; its architecture is not llama.
PREDICTING = """
like = "llama"
name = "glm4moe"
classes = ["PlainForCausalLM"]
vocabulary = "none"
uneven = ["blk.{i}.nextn.eh_proj.weight"]

[defaults]
block_count = "all_layers(num_hidden_layers, num_nextn_predict_layers or 0)"

[metadata]
nextn_predict_layers = "nonzero(block_count - num_hidden_layers)"

[tensors]
"model.layers.{i}.eh_proj.weight" = "blk.{i}.nextn.eh_proj.weight"
"""
RNG = np.random.default_rng(5)


def numbers(*shape, dtype=np.float16):
    return RNG.normal(size=shape).astype(dtype)


def layer(i, dtype=np.float16):
    name = f"model.layers.{i}"
    return {
        f"{name}.input_layernorm.weight": numbers(8, dtype=dtype),
        f"{name}.self_attn.q_proj.weight": numbers(8, 8, dtype=dtype),
        f"{name}.self_attn.k_proj.weight": numbers(8, 8, dtype=dtype),
        f"{name}.self_attn.v_proj.weight": numbers(8, 8, dtype=dtype),
        f"{name}.self_attn.o_proj.weight": numbers(8, 8, dtype=dtype),
        f"{name}.post_attention_layernorm.weight": numbers(8, dtype=dtype),
        f"{name}.mlp.gate_proj.weight": numbers(12, 8, dtype=dtype),
        f"{name}.mlp.up_proj.weight": numbers(12, 8, dtype=dtype),
        f"{name}.mlp.down_proj.weight": numbers(8, 12, dtype=dtype),
    }


def whole(dtype=np.float16):
    ends = {"model.embed_tokens.weight": numbers(10, 8, dtype=dtype),
            "model.norm.weight": numbers(8, dtype=dtype)}  # fmt: skip
    return ends | layer(0, dtype) | layer(1, dtype)
