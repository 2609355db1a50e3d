"""The cases of models with vocabularies of their own, and of their relatives."""

from __future__ import annotations

from typing import Any

from raw_shapes import LLAMA, raw

CASES: dict[str, Any] = {}
HALF = "float16"  # hides the last bit of PyTorch's sum, which depends on the machine
RAW = {
    "baichuan": raw(
        "BaichuanForCausalLM",
        {
            **{n: shape for n, shape in LLAMA.items() if n[-13:-9] not in ("q_pr", "k_pr", "v_pr")},
            "model.layers.{i}.self_attn.W_pack.weight": (192, 64),
        },
        vocabulary="pieces", model_type="baichuan", num_key_value_heads=None,
        max_position_embeddings=None, model_max_length=512,
    ),
    "bitnet": raw(
        "BitnetForCausalLM",
        {
            **{n: (shape, HALF) for n, shape in LLAMA.items() if n != "lm_head.weight"},
            "model.layers.{i}.self_attn.inner_attn_ln.weight": ((64,), HALF),
            "model.layers.{i}.mlp.ffn_layernorm.weight": ((96,), HALF),
        },
        vocabulary="pieces", model_type="llama", weight_bits=1, input_bits=8,
        tie_word_embeddings=True,
    ),
}  # fmt: skip
