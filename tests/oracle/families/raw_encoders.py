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
TASKS = ["retrieval.query", "separation"]
RANK = 4


def adapted(name: str, rows: int, columns: int, *, embeds: bool = False) -> Names:
    """Return a matrix of Jina 3 with an adapter for each task; those of embeddings are turned."""
    stem, sizes = f"{name}.parametrizations.weight", [(RANK, columns), (rows, RANK)]
    if embeds:
        sizes = [(rows, RANK), (RANK, columns)]
    factors = {f"{stem}.0.lora_{n}": (len(TASKS), *s) for n, s in zip("AB", sizes, strict=True)}
    return {f"{stem}.original": (rows, columns), **factors}


JINA3: Names = {
    **both({"roberta.emb_ln": (64,)}),
    **adapted("roberta.embeddings.word_embeddings", 416, 64, embeds=True),
    **adapted("roberta.embeddings.token_type_embeddings", 2, 64, embeds=True),
    **adapted("roberta.encoder.layers.{i}.mixer.Wqkv", 192, 64),
    **adapted("roberta.encoder.layers.{i}.mixer.out_proj", 64, 64),
    **adapted("roberta.encoder.layers.{i}.mlp.fc1", 96, 64),
    **adapted("roberta.encoder.layers.{i}.mlp.fc2", 64, 96),
    **adapted("roberta.pooler.dense", 64, 64),
    "roberta.pooler.dense.bias": (64,),
    **{
        f"roberta.encoder.layers.{{i}}.{name}.bias": (size,)
        for name, size in {
            "mixer.Wqkv": 192, "mixer.out_proj": 64, "mlp.fc1": 96, "mlp.fc2": 64,
        }.items()
    },
    **both({f"roberta.encoder.layers.{{i}}.norm{n}": (64,) for n in (1, 2)}),
}  # fmt: skip
NONE = dict.fromkeys(("num_key_value_heads", "rms_norm_eps", "rope_theta", "hidden_act"))
RAW: dict[str, Any] = {
    "jina-bert-v2": raw(
        "JinaBertModel", JINA, vocabulary="words", model_type="jina-bert", layer_norm_eps=1e-12,
        position_embedding_type="alibi", feed_forward_type="geglu", type_vocab_size=2, **NONE,
    ),
    "jina-bert-v3": raw(
        "XLMRobertaModel", JINA3, vocabulary="xlm", model_type="xlm-roberta", layer_norm_eps=1e-5,
        position_embedding_type="rotary", rotary_emb_base=20000.0, type_vocab_size=2,
        lora_adaptations=TASKS, lora_alpha=2, lora_rank=RANK, lora_dropout_p=0.0,
        task_instructions={task: f"Do {task}: " for task in TASKS}, load_trained_adapters=True,
        use_flash_attn=True, use_reg_tokens=False, lora_main_params_trainable=False,
        matryoshka_dimensions=[32, 64], pad_token_id=1, bos_token_id=0, eos_token_id=2,
        max_position_embeddings=514, num_key_value_heads=None, rms_norm_eps=None, rope_theta=None,
        hidden_act="gelu",
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
RAW["jina-bert-v3-alone"] = RAW["jina-bert-v3"] | {"vocabulary": "xlm-alone"}
