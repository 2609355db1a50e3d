"""The cases of classes whose layers differ in more than one number."""

from __future__ import annotations

from typing import Any

from case import YARN, case
from latent import LATENT, SPARSE, indexed, latent_layer, sparse
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
    "muse-glimmer": case(
        "MuseGlimmerConfig", kind="AutoModelForImageTextToText", library=5, vocabulary="turns",
        text_config={
            "model_type": "muse_glimmer_text", "head_dim": 16, "sliding_window": 64,
            "num_hidden_layers": 4, "tie_word_embeddings": False,
        },
        vision_config={
            "model_type": "muse_glimmer_vision", "hidden_size": 32, "intermediate_size": 48,
            "num_hidden_layers": 2, "num_attention_heads": 2, "patch_size": 14,
        },
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


def adapted(stem: str, matrix: tuple[int, int], *sizes: int) -> Names:
    """Return a matrix with two adapters of rank 8; of joined matrices each part has its own."""
    a, b = (2, 1, 8, matrix[1]), {n: (2, 1, size, 8) for n, size in enumerate(sizes)}
    name = f"model.layers.{{i}}.{stem}"
    own = {f"{name}.lora_A": a, f"{name}.lora_B": (2, 1, matrix[0], 8)}
    parts = {f"{name}.lora_A_slices.{n}": a for n in b} | {
        f"{name}.lora_B_slices.{n}": shape for n, shape in b.items()
    }
    return {f"{name}.base_layer.weight": matrix, **(parts or own)}


def mixer(names: Names) -> Names:
    """Return the tensors of a layer of Nemotron-H."""
    return {"backbone.layers.{i}.norm.weight": (64,)} | {
        f"backbone.layers.{{i}}.mixer.{name}": shape for name, shape in names.items()
    }


def latent_experts(size: int) -> Names:
    """Return four experts of a size that compute in a space of 32 dimensions."""
    return mixer({
        "gate.weight": (4, 64), "gate.e_score_correction_bias": (4,),
        "experts.{x}.up_proj.weight": (size, 32), "experts.{x}.down_proj.weight": (32, size),
        "shared_experts.up_proj.weight": (48, 64), "shared_experts.down_proj.weight": (64, 48),
        "fc1_latent_proj.weight": (32, 64), "fc2_latent_proj.weight": (64, 32),
    })  # fmt: skip


MIXED_ATTENTION = mixer({
    "q_proj.weight": (64, 64), "k_proj.weight": (32, 64), "v_proj.weight": (32, 64),
    "o_proj.weight": (64, 64),
})  # fmt: skip


def predicting(names: Names) -> Names:
    """Return the tensors of a layer under the names of the layers that predict."""
    return {name.replace("backbone.", "mtp."): shape for name, shape in names.items()}


def connected(prefix: str) -> Names:
    """Return the tensors of a hyper-connection of two streams and rank 8."""
    return {
        f"{prefix}.hc_norm.weight": (128,), f"{prefix}.input_mix_weight_down.weight": (8, 128),
        f"{prefix}.input_mix_weight_up.weight": (128, 8),
    }  # fmt: skip


LINEAR = {
    f"model.layers.{{i}}.linear_attn.{name}": shape
    for name, shape in {
        "A_log": (4,), "dt_bias": (4,), "conv1d.weight": (128, 1, 4), "norm.weight": (16,),
        "in_proj_qkv.weight": (128, 64), "in_proj_z.weight": (64, 64), "out_proj.weight": (64, 64),
        "in_proj_a.weight": (4, 64), "in_proj_b.weight": (4, 64),
    }.items()
}  # fmt: skip
INDEXED = {
    f"model.layers.{{i}}.self_attn.{name}.weight": shape
    for name, shape in {
        "q_proj": (128, 64), "k_proj": (32, 64), "v_proj": (32, 64), "o_proj": (64, 64),
        "q_norm": (16,), "k_norm": (16,), "indexer.index_qk_proj": (96, 64),
        "indexer.q_layernorm": (32,), "indexer.k_layernorm": (32,),
    }.items()
}  # fmt: skip
HASHED = {
    f"model.layers.{{i}}.ple.{name}": shape
    for name, shape in {
        "ple_embedding.layer_multipliers": ((3,), "counts"),
        "ple_embedding.ngram_heads_offsets": ((4,), "few"),
        "ple_embedding.ngram_heads_vocab_sizes": ((4,), "few"),
        **{f"ple_embedding.ngram_embedding.shard_{n}.weight": (8, 16) for n in range(12)},
        "key_proj.weight": (128, 64), "value_proj.weight": (64, 64), "norm_key.weight": (128,),
        "norm_query.weight": (128,), "norm_conv.weight": (128,), "conv1d.weight": (128, 1, 4),
    }.items()
}  # fmt: skip
SHARED = {
    f"model.layers.{{i}}.mlp.{name}": shape
    for name, shape in {
        "gate.weight": (4, 64), "experts.gate_up_proj": (4, 64, 64),
        "experts.down_proj": (4, 64, 32), "shared_expert_gate.weight": (1, 64),
        "shared_expert.gate_proj.weight": (32, 64), "shared_expert.up_proj.weight": (32, 64),
        "shared_expert.down_proj.weight": (64, 32),
    }.items()
}  # fmt: skip
WIDE: Names = {
    **latent_layer(), "self_attn.g_proj.weight": (4, 64),
    "self_attn.k_rope_only_layernorm.weight": (8,),
}  # fmt: skip
NARROW: Names = {
    **WIDE, "self_attn.q_b_proj.weight": (64, 24), "self_attn.kv_a_layernorm.weight": (32,),
    "self_attn.kv_a_proj_with_mqa.weight": (40, 64), "self_attn.kv_b_proj.weight": (72, 32),
    "self_attn.o_proj.weight": (64, 24), "self_attn.g_proj.weight": (2, 64),
}  # fmt: skip


def in_layer(names: Names) -> Names:
    """Return the names below a layer."""
    return {f"model.layers.{{i}}.{name}": shape for name, shape in names.items()}


def pair(name: str, weight: tuple[int, ...], bias: tuple[int, ...] = ()) -> Names:
    """Return a weight and a bias; without a shape, the bias has that of the weight."""
    return {f"{name}.weight": weight, f"{name}.bias": bias or weight}


RAW: dict[str, Any] = {
    "wavtokenizer": raw(
        "WavTokenizerDec",
        {
            "backbone.embedding.weight": (416, 64), "quantizer.codebook.inited": (1,),
            **pair("backbone.embed", (32, 64, 7), (32, 1)), **pair("backbone.norm", (32,)),
            **pair("backbone.final_layer_norm", (32,)), **pair("head.out", (64, 32), (64,)),
            **at([0, 1], {
                **pair("backbone.convnext.{i}.dwconv", (32, 1, 7), (32, 1)),
                **pair("backbone.convnext.{i}.norm", (32,)),
                **pair("backbone.convnext.{i}.pwconv1", (96, 32), (96,)),
                **pair("backbone.convnext.{i}.pwconv2", (32, 96), (32,)),
                "backbone.convnext.{i}.gamma.weight": (32,),
            }),
            **at([0, 1, 3, 4], {
                **pair("backbone.posnet.{i}.norm1", (32, 1)),
                **pair("backbone.posnet.{i}.norm2", (32, 1)),
                **pair("backbone.posnet.{i}.conv1", (32, 32, 3), (32, 1)),
                **pair("backbone.posnet.{i}.conv2", (32, 32, 3), (32, 1)),
            }),
            **at([2], {
                name: shape for part in ("q", "k", "v", "proj_out")
                for name, shape in pair(
                    f"backbone.posnet.{{i}}.{part}", (32, 32, 1), (32, 1)
                ).items()
            }),
            **at([2, 5], pair("backbone.posnet.{i}.norm", (32, 1))),
        },
        vocabulary="none", model_type="wavtokenizer", hidden_size=None, n_embd_features=64,
        n_ff=96, group_norm_epsilon=1e-6, group_norm_groups=8, num_hidden_layers=None, n_layer=6,
        posnet={"n_embd": 32, "n_layer": 6}, convnext={"n_embd": 32, "n_layer": 2}, n_embd=64,
        intermediate_size=None, num_key_value_heads=None, rms_norm_eps=None, rope_theta=None,
        layer_norm_epsilon=1e-6, hidden_act=None, num_attention_heads=None, n_head=1,
    ),
    "dots3-note": raw(
        "Dots3NoteTextForCausalLM",
        ENDS | NORMS | at([0], FEED_FORWARD) | at([1, 2, 3], in_layer(sparse()))
        | at([0, 2], in_layer(WIDE | indexed())) | at([1, 3], in_layer(NARROW))
        | at([3], in_layer({
            "eh_proj.weight": (64, 128), "enorm.weight": (64,), "hnorm.weight": (64,),
            "shared_head.norm.weight": (64,), "input_layernorm.weight": (64,),
            "post_attention_layernorm.weight": (64,),
        }))
        | {"model.mtp.embed_tokens.weight": (416, 64), "vision_encoder.norm.weight": (8,)},
        vocabulary="assistant", model_type="dots3_note_text", **LATENT | SPARSE,
        first_k_dense_replace=1, topk_method="noaux_tc", head_dim=24, sliding_window_size=64,
        layer_types=["full_attention", "sliding_attention", "full_attention"],
        swa_rope_theta=5000.0, swa_num_attention_heads=2, swa_kv_lora_rank=32,
        swa_q_lora_rank=24, swa_qk_nope_head_dim=24, swa_qk_rope_head_dim=8, swa_head_dim=32,
        swa_v_head_dim=12, index_n_heads=4, index_head_dim=64, index_topk=8,
        apply_mla_qkv_lora_rescale=True,
    ),
    "qwen4-exp": raw(
        "Qwen4ExpForCausalLM",
        {n: ENDS[n] for n in ("model.embed_tokens.weight", "lm_head.weight")}
        | SHARED | at([0, 1], LINEAR) | at([1], HASHED) | at([2], INDEXED)
        | connected("model.hyper_connection_mixer")
        | connected("model.layers.{i}.attn_hyper_connection")
        | connected("model.layers.{i}.mlp_hyper_connection")
        | {
            f"model.layers.{{i}}.{name}_hyper_connection.block_inject_weight.weight": (2, 128)
            for name in ("attn", "mlp")
        }
        | {"mtp.fc.weight": (64, 128)},
        model_type="qwen4_exp_text", intermediate_size=None, head_dim=16, rope_theta=None,
        rope_parameters={
            "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5,
            "mrope_section": [2, 1, 1], "mrope_interleaved": True,
        },
        layer_types=["linear_attention", "linear_attention", "full_attention"],
        linear_conv_kernel_dim=4, linear_key_head_dim=16, linear_value_head_dim=16,
        linear_num_key_heads=2, linear_num_value_heads=4, moe_intermediate_size=32,
        shared_expert_intermediate_size=32, num_experts_per_tok=2, num_experts=4, hc_count=2,
        hc_lowrank=8, ple_layer_ids=[2], ple_conv_kernel_size=4, ngram_size=3, heads_per_ngram=2,
        split_ngram_parts=12, indexer_n_heads=2, indexer_kv_heads=1, indexer_head_dim=32,
        indexer_budget=64, indexer_compress_ratio=4, image_token_id=9, mtp_num_hidden_layers=1,
    ),
    "nemotron-h-puzzle": raw(
        "NemotronHPuzzleForCausalLM",
        {
            "backbone.embeddings.weight": (416, 64), "backbone.norm_f.weight": (64,),
            "lm_head.weight": (416, 64), "mtp.layers.0.norm.weight": (64,),
            **at([0], mixer({
                "in_proj.weight": (328, 64), "conv1d.weight": (192, 1, 4), "conv1d.bias": (192,),
                "dt_bias": (8,), "A_log": (8,), "D": (8,), "norm.weight": (128,),
                "out_proj.weight": (64, 128),
            })),
            **at([1], latent_experts(32)), **at([3], latent_experts(96)),
            **at([2], MIXED_ATTENTION),
        },
        experts=4, model_type="nemotron_h_puzzle", num_hidden_layers=4, hidden_act=None,
        rms_norm_eps=None, intermediate_size=None, layer_norm_epsilon=1e-5, mamba_num_heads=8,
        mamba_head_dim=16, ssm_state_size=16, n_groups=2, conv_kernel=4, head_dim=16,
        mlp_hidden_act="relu2", mamba_hidden_act="silu", n_routed_experts=4, n_shared_experts=1,
        moe_shared_expert_intermediate_size=48, norm_topk_prob=True, routed_scaling_factor=2.5,
        n_group=1, topk_group=1, moe_latent_size=32, num_nextn_predict_layers=1,
        block_configs=[
            {"block_type": "mamba"},
            {"block_type": "moe", "moe_intermediate_size": 32, "num_experts_per_tok": 2},
            {"block_type": "attention"},
            {"block_type": "moe", "moe_intermediate_size": 96, "num_experts_per_tok": 3},
        ],
    ),
    "nemotron-h-predicting": raw(
        "NemotronHForCausalLM",
        {
            "backbone.embeddings.weight": (416, 64), "backbone.norm_f.weight": (64,),
            "lm_head.weight": (416, 64),
            **at([0], mixer({
                "in_proj.weight": (328, 64), "conv1d.weight": (192, 1, 4), "conv1d.bias": (192,),
                "dt_bias": (8,), "A_log": (8,), "D": (8,), "norm.weight": (128,),
                "out_proj.weight": (64, 128),
            })),
            **at([1, 3], latent_experts(32)), **at([2], MIXED_ATTENTION),
            **predicting(at([0], MIXED_ATTENTION) | at([1], latent_experts(32))),
            "mtp.layers.0.enorm.weight": (64,), "mtp.layers.0.hnorm.weight": (64,),
            "mtp.layers.0.eh_proj.weight": (64, 128), "mtp.layers.1.final_layernorm.weight": (64,),
        },
        experts=4, model_type="nemotron_h", num_hidden_layers=4, hidden_act=None,
        hybrid_override_pattern="ME*E", rms_norm_eps=None, rope_theta=None,
        layer_norm_epsilon=1e-5, conv_kernel=4, mlp_hidden_act="relu2", mamba_hidden_act="silu",
        n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=32,
        moe_shared_expert_intermediate_size=48, norm_topk_prob=True, routed_scaling_factor=2.5,
        n_group=1, topk_group=1, moe_latent_size=32, num_nextn_predict_layers=1,
        mamba_num_heads=8, mamba_head_dim=16, ssm_state_size=16, n_groups=2, head_dim=16,
    ),
    "granite-switch": raw(
        "GraniteSwitchForCausalLM",
        {
            "model.embed_tokens.weight": (416, 64), "model.norm.weight": (64,), **NORMS,
            "model.switch.adapter_token_ids": (2,),
            **adapted("self_attn.qkv_proj", (128, 64), 64, 32, 32),
            **adapted("self_attn.o_proj", (64, 64)),
            **adapted("shared_mlp.input_linear", (192, 64), 96, 96),
            **adapted("shared_mlp.output_linear", (64, 96)),
        },
        model_type="granite_switch", num_hidden_layers=4, shared_intermediate_size=96,
        num_local_experts=0, num_experts_per_tok=2, tie_word_embeddings=True,
        attention_multiplier=0.125, embedding_multiplier=2.0, logits_scaling=4.0,
        residual_multiplier=0.5, num_adapters=2, max_lora_rank=8, adapter_token_ids=[5, 6],
        adapter_substitute_token_ids=[7, 8], control_token_gain=20.0,
    ),
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
