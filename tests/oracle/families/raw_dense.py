"""The cases of dense models whose code is in neither version of transformers."""

from __future__ import annotations

from typing import Any

from raw_shapes import ENDS, FEED_FORWARD, LLAMA, NORMS, heads, raw

GPT = {
    "n_embd": 64, "n_head": 4, "n_layer": 3, "n_positions": 512, "layer_norm_epsilon": 1e-5,
    "hidden_size": None, "intermediate_size": None, "num_hidden_layers": None,
    "num_attention_heads": None, "num_key_value_heads": None, "rms_norm_eps": None,
    "max_position_embeddings": None, "rope_theta": None, "hidden_act": None,
}  # fmt: skip
BLOCKS = {
    "model.transformer.wte.weight": (416, 64), "model.transformer.ln_f.weight": (64,),
    "model.transformer.ff_out.weight": (416, 64),
    "model.transformer.blocks.{i}.attn_norm.weight": (64,),
    "model.transformer.blocks.{i}.ff_norm.weight": (64,),
    "model.transformer.blocks.{i}.q_proj.weight": (64, 64),
    "model.transformer.blocks.{i}.k_proj.weight": (64, 64),
    "model.transformer.blocks.{i}.v_proj.weight": (64, 64),
    "model.transformer.blocks.{i}.attn_out.weight": (64, 64),
    "model.transformer.blocks.{i}.ff_proj.weight": (96, 64),
    "model.transformer.blocks.{i}.up_proj.weight": (96, 64),
    "model.transformer.blocks.{i}.ff_out.weight": (64, 96),
}  # fmt: skip
BIASES = {
    f"model.layers.{{i}}.{name}.bias": (size,)
    for name, size in (
        ("input_layernorm", 64), ("post_attention_layernorm", 64),
        ("self_attn.q_proj", 64), ("self_attn.k_proj", 32), ("self_attn.v_proj", 32),
    )
}  # fmt: skip
QKV_BIASES = {name: shape for name, shape in BIASES.items() if "self_attn" in name}
ORION = {name: shape for name, shape in BIASES.items() if "layernorm" in name}
CASES: dict[str, Any] = {}
TIED = {name: shape for name, shape in ENDS.items() if name != "lm_head.weight"}
RAW = {
    "dream": raw(
        "DreamModel", LLAMA | QKV_BIASES, model_type="Dream", mask_token_id=3,
    ),
    "llada": raw(
        "LLaDAModelLM", BLOCKS, model_type="llada", d_model=64, n_heads=4, n_kv_heads=4,
        n_layers=3, mlp_hidden_size=96, max_sequence_length=512, hidden_size=64,
        intermediate_size=None, num_hidden_layers=None, num_attention_heads=None,
        num_key_value_heads=None, max_position_embeddings=None, mask_token_id=3, hidden_act=None,
    ),
    "maincoder": raw(
        "MaincoderForCausalLM", LLAMA | heads(16), model_type="maincoder", head_dim=16,
    ),
    "nanbeige": raw(
        "NanbeigeForCausalLM", LLAMA, model_type="nanbeige", num_loops=2,
        skip_loop_final_norm=True,
    ),
    "pangu": raw(
        "PanguEmbeddedForCausalLM",
        LLAMA | QKV_BIASES | {"model.layers.{i}.self_attn.o_proj.bias": (64,)},
        vocabulary="pieces", model_type="PanguEmbedded",
    ),
    "orion": raw(
        "OrionForCausalLM", LLAMA | ORION | {"model.norm.bias": (64,)}, vocabulary="pieces",
        model_type="orion",
    ),
    "llama-embed": raw(
        "LlamaBidirectionalModel",
        {n.removeprefix("model."): s for n, s in LLAMA.items() if n != "lm_head.weight"},
        model_type="llama_bidirec",
    ),
    "plm": raw(
        "PLMForCausalLM",
        TIED | NORMS | {
            "model.layers.{i}.self_attn.q_proj.weight": (96, 64),
            "model.layers.{i}.self_attn.kv_a_proj_with_mqa.weight": (24, 64),
            "model.layers.{i}.self_attn.kv_a_layernorm.weight": (16,),
            "model.layers.{i}.self_attn.kv_b_proj.weight": (128, 16),
            "model.layers.{i}.self_attn.o_proj.weight": (64, 64),
            "model.layers.{i}.mlp.up_proj.weight": (96, 64),
            "model.layers.{i}.mlp.down_proj.weight": (64, 96),
        },
        model_type="plm", kv_lora_rank=16, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16,
        hidden_act="relu2", num_key_value_heads=4, tie_word_embeddings=True,
    ),
    "minicpm3": raw(
        "MiniCPM3ForCausalLM",
        ENDS | NORMS | FEED_FORWARD | {
            "model.layers.{i}.self_attn.q_a_proj.weight": (24, 64),
            "model.layers.{i}.self_attn.q_a_layernorm.weight": (24,),
            "model.layers.{i}.self_attn.q_b_proj.weight": (96, 24),
            "model.layers.{i}.self_attn.kv_a_proj_with_mqa.weight": (24, 64),
            "model.layers.{i}.self_attn.kv_a_layernorm.weight": (16,),
            "model.layers.{i}.self_attn.kv_b_proj.weight": (128, 16),
            "model.layers.{i}.self_attn.o_proj.weight": (64, 64),
        },
        vocabulary="pieces", model_type="minicpm3-raw", kv_lora_rank=16, q_lora_rank=24,
        qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16, num_key_value_heads=4,
    ),
    "refact": raw(
        "GPTRefactForCausalLM",
        {
            "transformer.wte.weight": (416, 64), "transformer.ln_f.weight": (64,),
            "lm_head.weight": (416, 64), "transformer.h.{i}.ln_1.weight": (64,),
            "transformer.h.{i}.ln_2.weight": (64,), "transformer.h.{i}.attn.q.weight": (64, 64),
            "transformer.h.{i}.attn.kv.weight": (32, 64),
            "transformer.h.{i}.attn.c_proj.weight": (64, 64),
            "transformer.h.{i}.mlp.gate_up_proj.weight": (512, 64),
            "transformer.h.{i}.mlp.c_proj.weight": (64, 256),
        },
        model_type="gpt_refact", **GPT,
    ),
    "codeshell": raw(
        "CodeShellForCausalLM",
        {
            "transformer.wte.weight": (416, 64), "transformer.ln_f.weight": (64,),
            "transformer.ln_f.bias": (64,), "lm_head.weight": (416, 64),
            **{
                f"transformer.h.{{i}}.{name}.{kind}": shape if kind == "weight" else shape[:1]
                for name, shape in {
                    "ln_1": (64,), "ln_2": (64,), "attn.c_attn": (128, 64),
                    "attn.c_proj": (64, 64), "mlp.c_fc": (256, 64), "mlp.c_proj": (64, 256),
                }.items()
                for kind in ("weight", "bias")
            },
        },
        model_type="kclgpt", num_query_groups=2, **GPT,
    ),
    "neobert": raw(
        "NeoBERT",
        {
            "encoder.weight": (416, 64), "layer_norm.weight": (64,),
            "transformer_encoder.{i}.attention_norm.weight": (64,),
            "transformer_encoder.{i}.ffn_norm.weight": (64,),
            "transformer_encoder.{i}.qkv.weight": (192, 64),
            "transformer_encoder.{i}.wo.weight": (64, 64),
            "transformer_encoder.{i}.ffn.w12.weight": (128, 64),
            "transformer_encoder.{i}.ffn.w3.weight": (64, 64),
        },
        vocabulary="words", model_type="neobert", num_key_value_heads=None, rms_norm_eps=None,
        norm_eps=1e-5, rope_theta=None, hidden_act=None, max_length=512,
        max_position_embeddings=None,
    ),
    "xverse": raw(
        "XverseForCausalLM",
        LLAMA | {f"model.layers.{{i}}.self_attn.{n}_proj.weight": (64, 64) for n in "kv"},
        vocabulary="merged", model_type="xverse", num_key_value_heads=4,
    ),
    "openelm": raw(
        "OpenELMForCausalLM",
        {
            "transformer.token_embeddings.weight": (416, 64), "transformer.norm.weight": (64,),
            "transformer.layers.{i}.attn_norm.weight": (64,),
            "transformer.layers.{i}.ffn_norm.weight": (64,),
            "transformer.layers.{i}.attn.qkv_proj.weight": (128, 64),
            "transformer.layers.{i}.attn.q_norm.weight": (16,),
            "transformer.layers.{i}.attn.k_norm.weight": (16,),
            "transformer.layers.{i}.attn.out_proj.weight": (64, 64),
            "transformer.layers.{i}.ffn.proj_1.weight": (128, 64),
            "transformer.layers.{i}.ffn.proj_2.weight": (64, 64),
        },
        vocabulary="pieces", model_type="openelm", model_dim=64, num_transformer_layers=3,
        head_dim=16, num_kv_heads=[2, 2, 2], num_query_heads=[4, 4, 4],
        ffn_multipliers=[1.0, 1.0, 1.0], ffn_dim_divisor=32, max_context_length=512,
        rope_freq_constant=10000, hidden_size=None, intermediate_size=None,
        num_hidden_layers=None, num_attention_heads=None, num_key_value_heads=None,
        max_position_embeddings=None, hidden_act=None, rms_norm_eps=None, rope_theta=None,
    ),
    "nemotron-h": raw(
        "NemotronHForCausalLM",
        {
            "backbone.embeddings.weight": (416, 64), "backbone.norm_f.weight": (64,),
            "lm_head.weight": (416, 64), "backbone.layers.{i}.norm.weight": (64,),
            "backbone.layers.3.norm.weight": (64,),
            "backbone.layers.0.mixer.A_log": (8,), "backbone.layers.0.mixer.D": (8,),
            "backbone.layers.0.mixer.conv1d.bias": (192,),
            "backbone.layers.0.mixer.conv1d.weight": (192, 1, 4),
            "backbone.layers.0.mixer.dt_bias": (8,),
            "backbone.layers.0.mixer.in_proj.weight": (328, 64),
            "backbone.layers.0.mixer.norm.weight": (128,),
            "backbone.layers.0.mixer.out_proj.weight": (64, 128),
            "backbone.layers.2.mixer.q_proj.weight": (64, 64),
            "backbone.layers.2.mixer.k_proj.weight": (32, 64),
            "backbone.layers.2.mixer.v_proj.weight": (32, 64),
            "backbone.layers.2.mixer.o_proj.weight": (64, 64),
            **{
                f"backbone.layers.{n}.mixer.{name}_proj.weight": shape
                for n in (1, 3)
                for name, shape in (("up", (96, 64)), ("down", (64, 96)))
            },
        },
        model_type="nemotron_h", hybrid_override_pattern="M-*-", num_hidden_layers=4, head_dim=16,
        mamba_num_heads=8, mamba_head_dim=16, ssm_state_size=16, n_groups=2, conv_kernel=4,
        layer_norm_epsilon=1e-5, mlp_hidden_act="relu2", mamba_hidden_act="silu",
        hidden_act=None, rms_norm_eps=None, rope_theta=None,
    ),
    "exaone4.5": raw(
        "Exaone4_5_ForConditionalGeneration",
        {
            **ENDS, "mtp.fc.weight": (64, 128), "mtp.norm.weight": (64,),
            "mtp.pre_fc_norm_embedding.weight": (64,), "mtp.pre_fc_norm_hidden.weight": (64,),
            "model.visual.merger.mlp.0.weight": (64, 32),
            **{
                f"{home}.{name}.weight": shape
                for home in ("model.layers.{i}", "mtp.layers.0")
                for name, shape in {
                    "self_attn.q_proj": (64, 64), "self_attn.k_proj": (32, 64),
                    "self_attn.v_proj": (32, 64), "self_attn.o_proj": (64, 64),
                    "self_attn.q_norm": (16,), "self_attn.k_norm": (16,),
                    "post_attention_layernorm": (64,), "post_feedforward_layernorm": (64,),
                    "mlp.gate_proj": (96, 64), "mlp.up_proj": (96, 64), "mlp.down_proj": (64, 96),
                }.items()
            },
        },
        model_type="exaone4_5-raw", num_nextn_predict_layers=1, sliding_window=None,
    ),
    "paddleocr": raw(
        "PaddleOCRVLForConditionalGeneration",
        LLAMA | {"mlp_AR.linear_1.weight": (64, 32), "visual.vision_model.x.weight": (8, 8)},
        vocabulary="pieces", model_type="paddleocr_vl-raw", head_dim=16,
        rope_scaling={"type": "default", "rope_type": "default", "mrope_section": [2, 3, 3]},
    ),
    "phi4-pictures": raw(
        "Phi4ForCausalLMV",
        ENDS | NORMS | {
            "model.layers.{i}.self_attn.qkv_proj.weight": (128, 64),
            "model.layers.{i}.self_attn.o_proj.weight": (64, 64),
            "model.layers.{i}.mlp.gate_up_proj.weight": (192, 64),
            "model.layers.{i}.mlp.down_proj.weight": (64, 96),
            "model.mm_projector.0.weight": (64, 32),
        },
        model_type="phi4-siglip", original_max_position_embeddings=512,
    ),
}  # fmt: skip
