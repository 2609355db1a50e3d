"""The cases of encoders whose code is in neither version of transformers."""

from __future__ import annotations

from typing import Any

from raw_shapes import Names, at, raw

CASES: dict[str, Any] = {}


def both(shapes: Names) -> Names:
    """Return a weight and a bias for each name."""
    kinds = ("weight", "bias")
    return {
        f"{name}.{kind}": shape if kind == "weight" else shape[:1]
        for name, shape in shapes.items()
        for kind in kinds
    }


ENDS: Names = {
    "embeddings.word_embeddings.weight": (416, 64),
    "embeddings.token_type_embeddings.weight": (2, 64),
}  # fmt: skip
JINA: Names = {
    **ENDS,
    **both({"embeddings.LayerNorm": (64,)}),
    **both({
        f"encoder.layer.{{i}}.{name}": shape
        for name, shape in {
            "attention.self.query": (64, 64), "attention.self.key": (64, 64),
            "attention.self.value": (64, 64), "attention.output.dense": (64, 64),
            "attention.output.LayerNorm": (64,), "mlp.wo": (64, 96), "mlp.layernorm": (64,),
        }.items()
    }),
    "encoder.layer.{i}.mlp.gated_layers.weight": (192, 64),
}  # fmt: skip
DENSE = ((1, (96, 64)), (2, (64, 96)))
NOMIC: Names = {
    **ENDS,
    **both({"emb_ln": (64,)}),
    **both({
        f"encoder.layers.{{i}}.{name}": shape
        for name, shape in {
            "attn.Wqkv": (192, 64), "attn.out_proj": (64, 64), "norm1": (64,), "norm2": (64,),
        }.items()
    }),
    **at([0, 2], both({f"encoder.layers.{{i}}.mlp.fc{n}": s for n, s in DENSE})),
    **at([1], {
        "encoder.layers.{i}.mlp.router.layer.weight": (4, 64),
        "encoder.layers.{i}.mlp.experts.mlp.w1": (384, 64),
        "encoder.layers.{i}.mlp.experts.mlp.w2": (384, 64),
        "encoder.layers.{i}.mlp.experts.bias": (64,),
    }),
}  # fmt: skip
NONE = dict.fromkeys(("num_key_value_heads", "rms_norm_eps", "rope_theta", "hidden_act"))
RAW: dict[str, Any] = {
    "jina-bert-v2": raw(
        "JinaBertModel", JINA, vocabulary="words", model_type="jina-bert", layer_norm_eps=1e-12,
        position_embedding_type="alibi", feed_forward_type="geglu", type_vocab_size=2, **NONE,
    ),
    "nomic-bert-moe": raw(
        "NomicBertModel", NOMIC, vocabulary="words", model_type="nomic_bert", n_embd=64, n_head=4,
        n_layer=3, n_inner=96, n_positions=2048, max_trained_positions=2048,
        activation_function="gelu", causal=False, qkv_proj_bias=True, mlp_fc1_bias=True,
        mlp_fc2_bias=True, prenorm=False, rotary_emb_base=10000, rotary_emb_fraction=1.0,
        rotary_emb_interleaved=False, layer_norm_epsilon=1e-5, type_vocab_size=2, num_experts=4,
        moe_every_n_layers=2, moe_top_k=2, hidden_size=None, intermediate_size=None,
        num_hidden_layers=None, num_attention_heads=None, max_position_embeddings=None,
        rotary_emb_scale_base=False, **NONE,
    ),
}  # fmt: skip
RAW["nomic-bert-moe"]["config"]["rotary_emb_scale_base"] = None
