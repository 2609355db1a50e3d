"""The cases of Liquid's LFM2 with experts, and as an encoder."""

from __future__ import annotations

from typing import Any

from case import case
from raw_shapes import Names, at, raw

FEED_FORWARD: Names = {
    "layers.{i}.feed_forward.w1.weight": (96, 64), "layers.{i}.feed_forward.w2.weight": (64, 96),
    "layers.{i}.feed_forward.w3.weight": (96, 64), "layers.{i}.ffn_norm.weight": (64,),
    "layers.{i}.operator_norm.weight": (64,),
}  # fmt: skip
CONVOLUTION: Names = {
    "layers.{i}.conv.conv.weight": (64, 1, 3), "layers.{i}.conv.in_proj.weight": (192, 64),
    "layers.{i}.conv.out_proj.weight": (64, 64),
}  # fmt: skip
ATTENTION: Names = {
    "layers.{i}.self_attn.q_proj.weight": (64, 64), "layers.{i}.self_attn.k_proj.weight": (32, 64),
    "layers.{i}.self_attn.v_proj.weight": (32, 64),
    "layers.{i}.self_attn.out_proj.weight": (64, 64),
    "layers.{i}.self_attn.q_layernorm.weight": (16,),
    "layers.{i}.self_attn.k_layernorm.weight": (16,),
}  # fmt: skip
CASES = {
    "lfm2-moe": case(
        "Lfm2MoeConfig", library=5, moe_intermediate_size=32, num_dense_layers=1,
        num_experts=4, num_experts_per_tok=2, conv_L_cache=3, use_expert_bias=True,
        layer_types=["conv", "full_attention", "conv"],
    ),
}  # fmt: skip
RAW: dict[str, Any] = {
    "lfm2-embedder": raw(
        "Lfm2BidirectionalModel",
        {"embed_tokens.weight": (416, 64), "embedding_norm.weight": (64,)}
        | FEED_FORWARD | at([0, 2], CONVOLUTION) | at([1], ATTENTION),
        model_type="lfm2", layer_types=["conv", "full_attention", "conv"], conv_L_cache=3,
        conv_bias=False, block_auto_adjust_ff_dim=False, block_ffn_dim_multiplier=1.0,
        block_multiple_of=32, norm_eps=1e-5, rms_norm_eps=None, hidden_act=None,
    ),
    "lfm2.5-audio-tokenizer": raw(
        "Lfm25AudioTokenizer",
        {
            f"lfm.{name}": shape
            for name, shape in ({
                "embed_tokens.weight": (416, 64), "embedding_norm.weight": (64,),
            } | FEED_FORWARD | at([0, 2], CONVOLUTION) | at([1], ATTENTION)).items()
        } | {
            "emb.emb.weight": (64, 64), "istft.window": (64,), "lin.weight": (34, 64),
            "lin.bias": (34,),
        },
        vocabulary="none", model_type="lfm2",
        layer_types=["conv", "sliding_attention", "conv"], conv_L_cache=3, conv_bias=False,
        block_auto_adjust_ff_dim=False, block_ffn_dim_multiplier=1.0, block_multiple_of=32,
        norm_eps=1e-5, rms_norm_eps=None, hidden_act=None, sliding_window=64, output_size=34,
        bos_token_id=None, eos_token_id=None, pad_token_id=None,
    ),
}  # fmt: skip
