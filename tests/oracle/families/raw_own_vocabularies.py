"""The cases of models with vocabularies of their own, and of their relatives."""

from __future__ import annotations

from typing import Any

from raw_shapes import ATTENTION, ENDS, LLAMA, NORMS, Names, at, raw

CASES: dict[str, Any] = {}
HALF = "float16"  # hides the last bit of PyTorch's sum, which depends on the machine
SIDES = ("pre_mixer", "post_mixer", "pre_mlp", "post_mlp")
PLAMO: Names = {
    **ENDS,
    **{f"model.layers.layers.{{i}}.{name}_norm.weight": (64,) for name in SIDES},
    "model.layers.layers.{i}.mlp.gate_up_proj.weight": (192, 64),
    "model.layers.layers.{i}.mlp.down_proj.weight": (64, 96),
}
MIXER = "model.layers.layers.{i}.mixer."
ATTENDING: Names = {f"{MIXER}qkv_proj.weight": (128, 64), f"{MIXER}o_proj.weight": (64, 64)}
STATES: Names = {
    f"{MIXER}in_proj.weight": (128, 64), f"{MIXER}conv1d.weight": (64, 1, 4),
    f"{MIXER}bcdt_proj.weight": (80, 64), f"{MIXER}dt_proj.weight": (4, 64),
    f"{MIXER}dt_bias": (4,), f"{MIXER}A_log": (4,), f"{MIXER}D": (4,),
    f"{MIXER}out_proj.weight": (64, 64), f"{MIXER}dt_norm_weight": (64,),
    f"{MIXER}B_norm_weight": (8,), f"{MIXER}C_norm_weight": (8,),
}  # fmt: skip
RAW = {
    "plamo2": raw(
        "Plamo2ForCausalLM",
        PLAMO | at([0, 2], STATES)
        | at([1], {**ATTENDING, f"{MIXER}q_weight": (4, 16), f"{MIXER}k_weight": (2, 16)}),
        vocabulary="plamo", model_type="plamo2", hidden_size_per_head=16, mamba_d_state=8,
        mamba_d_conv=4, mamba_num_heads=4, mamba_step=2, mamba_enabled=True,
        attention_window_size=128,
    ),
    "plamo3": raw(
        "Plamo3ForCausalLM",
        PLAMO | ATTENDING
        | {f"{MIXER}q_norm.weight": (16,), f"{MIXER}k_norm.weight": (16,)},
        vocabulary="plamo", model_type="plamo3", head_dim=16, window_size=128,
        sliding_window_pattern=8, rope_local_theta=5000,
    ),
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
PACKED = {  # four rows in one of bytes
    name: (shape[0] // 4, shape[1]) for name, shape in LLAMA.items() if "_proj" in name
}  # fmt: skip
PACKED_LLAMA: Names = {
    **LLAMA,
    **{name: (shape, "uint8") for name, shape in PACKED.items()},
    **{f"{name}_scale": (1,) for name in PACKED},
}
RAW["llama-bitnet"] = raw(
    "LlamaForCausalLM", PACKED_LLAMA, model_type="llama",
    quantization_config={"quant_method": "bitnet"},
)  # fmt: skip
ROWS = 256 + 10 + 210  # bytes, learned tokens and special ones
TALL: Names = {"model.embed_tokens.weight": (ROWS, 64), "lm_head.weight": (ROWS, 64)}
HUNYUAN: Names = {
    **ENDS, **TALL, **NORMS, **ATTENTION,
    "model.layers.{i}.self_attn.query_layernorm.weight": (16,),
    "model.layers.{i}.self_attn.key_layernorm.weight": (16,),
    "model.layers.{i}.mlp.gate.wg.weight": (4, 64),
    "model.layers.{i}.mlp.experts.{x}.gate_proj.weight": (96, 64),
    "model.layers.{i}.mlp.experts.{x}.up_proj.weight": (96, 64),
    "model.layers.{i}.mlp.experts.{x}.down_proj.weight": (64, 96),
    "model.layers.{i}.mlp.shared_mlp.gate_proj.weight": (96, 64),
    "model.layers.{i}.mlp.shared_mlp.up_proj.weight": (96, 64),
    "model.layers.{i}.mlp.shared_mlp.down_proj.weight": (64, 96),
}  # fmt: skip
RAW["hunyuan-moe"] = raw(
    "HunYuanMoEV1ForCausalLM", HUNYUAN, vocabulary="hunyuan", experts=4,
    model_type="hunyuan_v1_moe_raw", vocab_size=ROWS, num_experts=4, moe_topk=[2] * 3,
    moe_intermediate_size=[96] * 3, num_shared_expert=[1] * 3, use_qk_norm=True,
)  # fmt: skip
RAW["qwen"] = raw(
    "QWenLMHeadModel",
    {
        "transformer.wte.weight": (ROWS, 64), "transformer.ln_f.weight": (64,),
        "lm_head.weight": (ROWS, 64), "transformer.h.{i}.ln_1.weight": (64,),
        "transformer.h.{i}.attn.c_attn.weight": (192, 64),
        "transformer.h.{i}.attn.c_attn.bias": (192,),
        "transformer.h.{i}.attn.c_proj.weight": (64, 64), "transformer.h.{i}.ln_2.weight": (64,),
        "transformer.h.{i}.mlp.w1.weight": (96, 64), "transformer.h.{i}.mlp.w2.weight": (96, 64),
        "transformer.h.{i}.mlp.c_proj.weight": (64, 96),
    },
    vocabulary="qwen", model_type="qwen", vocab_size=ROWS, intermediate_size=192, no_bias=True,
    kv_channels=16, layer_norm_epsilon=1e-6, rms_norm_eps=None, rope_theta=None,
    rotary_emb_base=10000, hidden_act=None, num_key_value_heads=None, bos_token_id=None,
    eos_token_id=None, pad_token_id=None,
)  # fmt: skip
# The converter knows PLaMo 1 in its only size: one layer has to do.
WIDE = {"q": 5120, "k": 640, "v": 640, "o": 5120}
RAW["plamo"] = raw(
    "PlamoForCausalLM",
    {
        "model.embed_tokens.weight": (416, 5120), "model.norm.weight": (5120,),
        "lm_head.weight": (416, 5120), "model.layers.layers.{i}.norm.weight": (5120,),
        **{
            f"model.layers.layers.{{i}}.self_attn.{name}_proj.weight": (rows, 5120)
            for name, rows in WIDE.items()
        },
        "model.layers.layers.{i}.mlp.gate_proj.weight": (96, 5120),
        "model.layers.layers.{i}.mlp.up_proj.weight": (96, 5120),
        "model.layers.layers.{i}.mlp.down_proj.weight": (5120, 96),
    },
    vocabulary="pieces", model_type="plamo", hidden_size=5120, num_hidden_layers=1,
    num_attention_heads=40, num_key_value_heads=40, n_shared_head=8,
) | {"layers": 1}  # fmt: skip
