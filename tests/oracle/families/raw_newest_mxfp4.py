"""The cases of models whose experts are MXFP4 in the published checkpoints."""

from __future__ import annotations

from typing import Any

from case import BASE
from latent import LATENT, latent_layer
from raw_shapes import ENDS, FEED_FORWARD, NORMS, Names, at, raw

CASES: dict[str, Any] = {}
FP8 = "float8_e4m3fn"
HYPER: Names = {
    f"hc_{part}_{name}": (shape, "float32")
    for part in ("attn", "ffn")
    for name, shape in {"fn": (24, 256), "base": (24,), "scale": (3,)}.items()
}


def below(prefix: str, names: Names) -> Names:
    """Return the names, each below a prefix."""
    return {f"{prefix}{name}": shape for name, shape in names.items()}


def mxfp4(rows: int, columns: int, name: str, scale: str, codes: str, powers: str) -> Names:
    """Return the codes and the scales of a matrix."""
    return {
        name: ((rows, columns // 2), codes), scale: ((rows, columns // 32), powers),
    }  # fmt: skip


def expert(number: str, rows: int, columns: int) -> Names:
    """Return a matrix of an expert of DeepSeek V4."""
    stem = f"ffn.experts.{{x}}.w{number}"
    return mxfp4(rows, columns, f"{stem}.weight", f"{stem}.scale", "int8", "powers")


def compressor(width: int, ratio: int, length: int) -> Names:
    """Return what compresses so many keys into one."""
    return {
        "ape": ((ratio, width), "float32"), "wkv.weight": (width, 64), "wgate.weight": (width, 64),
        "norm.weight": (length,),
    }  # fmt: skip


def with_scales(names: Names, *, is_fp8: bool) -> Names:
    """Return matrices as FP8 with their scales."""
    if not is_fp8:
        return names
    scales = {
        name.replace(".weight", ".scale"): ((-(-shape[0] // 128), -(-shape[1] // 128)), "powers")
        for name, shape in names.items()
    }
    return {name: (shape, FP8) for name, shape in names.items()} | scales


def layer(*, is_fp8: bool) -> Names:
    """Return what all layers of DeepSeek V4 have."""
    matrices = {
        "attn.wq_a.weight": (32, 64), "attn.wq_b.weight": (128, 32), "attn.wkv.weight": (32, 64),
        "attn.wo_a.weight": (32, 64), "attn.wo_b.weight": (64, 32),
        "ffn.shared_experts.w1.weight": (32, 64), "ffn.shared_experts.w2.weight": (64, 32),
        "ffn.shared_experts.w3.weight": (32, 64),
    }  # fmt: skip
    return {
        **with_scales(matrices, is_fp8=is_fp8), **HYPER,
        "attn.attn_sink": ((4,), "float32"), "attn.q_norm.weight": (32,),
        "attn.kv_norm.weight": (32,), "attn_norm.weight": (64,), "ffn_norm.weight": (64,),
        "ffn.gate.weight": (4, 64),
        **expert("1", 32, 64), **expert("2", 64, 32), **expert("3", 32, 64),
    }  # fmt: skip


def head() -> Names:
    """Return what joins the streams of a model before its last norm."""
    return {
        "hc_head_fn": ((4, 256), "float32"), "hc_head_base": ((4,), "float32"),
        "hc_head_scale": ((1,), "float32"),
    }  # fmt: skip


def deepseek4(*, is_fp8: bool) -> Names:
    """Return the tensors of three layers and of one that predicts a further token."""
    own = layer(is_fp8=is_fp8)
    indexed = below("attn.compressor.", compressor(64, 4, 32)) | {
        "attn.indexer.wq_b.weight": (128, 32), "attn.indexer.weights_proj.weight": (2, 64),
        **below("attn.indexer.compressor.", compressor(128, 4, 64)),
    }  # fmt: skip
    biased = {"ffn.gate.bias": ((4,), "float32")}
    joint = with_scales({"e_proj.weight": (64, 64), "h_proj.weight": (64, 64)}, is_fp8=is_fp8)
    norms = {f"{name}.weight": (64,) for name in ("enorm", "hnorm", "norm")}
    return {
        "embed.weight": (416, 64), "norm.weight": (64,), "head.weight": (416, 64), **head(),
        **below("layers.{i}.", own),
        **at([0], below("layers.{i}.", {"ffn.gate.tid2eid": ((416, 2), "choices"), **biased})),
        **at([1], below("layers.{i}.", indexed)),
        **at([1, 2], below("layers.{i}.", biased)),
        **at([2], below("layers.{i}.attn.compressor.", compressor(32, 128, 32))),
        **below("mtp.0.", {**own, **biased, **joint, **norms, **head()}),
    }  # fmt: skip


def plain() -> Names:
    """Return the tensors of DeepSeek V4 as F32: BF16 would stay BF16, and llama.cpp round to it."""
    sizes = {"w1": (32, 64), "w2": (64, 32), "w3": (32, 64)}
    experts = {f"layers.{{i}}.ffn.experts.{{x}}.{name}.weight": sizes[name] for name in sizes}
    others = {
        name: shape for name, shape in deepseek4(is_fp8=False).items()
        if ".ffn.experts." not in name and not name.startswith("mtp.")
        and name != "layers.0.ffn.gate.bias"
    }  # fmt: skip
    return {
        name: shape
        if shape[1:] == ("choices",)
        else (shape[0] if isinstance(shape[0], tuple) else shape, "small")
        for name, shape in (others | experts).items()
    }


def dspark() -> Names:
    """Return the tensors of the draft model: two layers, and what comes before and after them."""
    first = {"main_proj.weight": (64, 192), "main_norm.weight": (64,)}
    last = {
        "norm.weight": (64,), "markov_head.markov_w1.weight": (416, 32),
        "markov_head.markov_w2.weight": (416, 32), "confidence_head.proj.weight": (1, 96), **head(),
    }  # fmt: skip
    own = {**layer(is_fp8=False), "ffn.gate.bias": ((4,), "float32")}
    whole = {k: v for k, v in deepseek4(is_fp8=False).items() if not k.startswith("mtp.")}
    return {
        **whole, **at([0, 1], below("mtp.{i}.", own)), **below("mtp.0.", first),
        **below("mtp.1.", last),
    }  # fmt: skip


V4: dict[str, Any] = {
    "model_type": "deepseek_v4", "num_key_value_heads": 1, "head_dim": 32, "qk_rope_head_dim": 16,
    "q_lora_rank": 32, "o_groups": 2, "o_lora_rank": 16, "sliding_window": 128,
    "moe_intermediate_size": 32, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "n_shared_experts": 1, "routed_scaling_factor": 1.5, "norm_topk_prob": True,
    "scoring_func": "sqrtsoftplus", "topk_method": "noaux_tc", "swiglu_limit": 10.0,
    "index_n_heads": 2, "index_head_dim": 64, "index_topk": 16, "compress_ratios": [0, 4, 128, 0],
    "compress_rope_theta": 160000.0, "hc_mult": 4, "hc_sinkhorn_iters": 20, "hc_eps": 1e-6,
    "num_hash_layers": 1, "num_nextn_predict_layers": 1, "intermediate_size": None,
    "expert_dtype": "fp4", "rope_scaling": {
        "type": "yarn", "factor": 16, "original_max_position_embeddings": 128, "beta_fast": 32,
        "beta_slow": 1,
    },
    "quantization_config": {
        "quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "scale_fmt": "ue8m0",
        "weight_block_size": [128, 128],
    },
}  # fmt: skip
KDA: Names = {
    **{f"self_attn.{name}_proj.weight": (64, 64) for name in ("q", "k", "v", "o", "g")},
    **{f"self_attn.{name}_conv1d.weight": (64, 1, 4) for name in ("q", "k", "v")},
    "self_attn.f_a_proj.weight": (16, 64), "self_attn.f_b_proj.weight": (64, 16),
    "self_attn.b_proj.weight": (4, 64), "self_attn.dt_bias": ((64,), "float32"),
    "self_attn.A_log": (4,), "self_attn.o_norm.weight": (16,),
}  # fmt: skip


def kimi(*, is_packed: bool) -> Names:
    """Return the tensors of two layers of Kimi's delta attention and one of latent attention."""
    scores = {
        f"{part}_res_{kind}.weight": shape
        for part in ("self_attention", "mlp")
        for kind, shape in (("norm", (64,)), ("proj", (1, 64)))
    }  # fmt: skip
    experts: Names = {}
    for number in "123":
        stem = f"experts.{{x}}.w{number}.weight"
        packed = mxfp4(32, 32, f"{stem}_packed", f"{stem}_scale", "uint8", "exponents")
        experts |= packed if is_packed else {stem: (32, 32)}
    moe = {
        **experts, "gate.weight": (4, 64), "gate.e_score_correction_bias": ((4,), "float32"),
        "routed_expert_down_proj.weight": (32, 64), "routed_expert_up_proj.weight": (64, 32),
        "routed_expert_norm.weight": (32,), "shared_experts.gate_proj.weight": (32, 64),
        "shared_experts.up_proj.weight": (32, 64), "shared_experts.down_proj.weight": (64, 32),
    }  # fmt: skip
    text = {
        **ENDS, **below("model.layers.{i}.", scores), **NORMS,
        "model.output_attn_res_norm.weight": (64,), "model.output_attn_res_proj.weight": (1, 64),
        **at([0], FEED_FORWARD), **at([0, 2], below("model.layers.{i}.", KDA)),
        **at([1], below("model.layers.{i}.", latent_layer())),
        **at([1], {"model.layers.{i}.self_attn.g_proj.weight": (48, 64)}),
        **at([1, 2], below("model.layers.{i}.block_sparse_moe.", moe)),
    }  # fmt: skip
    return {
        **below("language_model.", text), "vision_tower.patch_embed.proj.weight": (8, 8),
        "mm_projector.proj.0.weight": (8, 8),
    }  # fmt: skip


K3: dict[str, Any] = {
    **BASE, **LATENT, "model_type": "kimi_linear", "hidden_act": "situ", "rms_norm_eps": 1e-5,
    "num_experts": 4, "num_experts_per_token": 2, "num_shared_experts": 1, "eos_token_id": 4,
    "moe_intermediate_size": 32, "first_k_dense_replace": 1, "routed_scaling_factor": 2.5,
    "moe_renormalize": True, "moe_router_activation_func": "sigmoid", "num_expert_group": 1,
    "topk_group": 1, "moe_layer_freq": 1, "mla_use_nope": True, "routed_expert_hidden_size": 32,
    "activation_situ_beta": 1.5, "activation_situ_linear_beta": 4.0, "attn_res_block_size": 2,
    "linear_attn_config": {
        "full_attn_layers": [2], "kda_layers": [1, 3], "head_dim": 16, "num_heads": 4,
        "short_conv_kernel_size": 4, "gate_lower_bound": -5.0,
    },
}  # fmt: skip
PACKED = {"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized"}


def kimi_case(**fields: Any) -> dict[str, Any]:
    """Return a case of Kimi K3 with more fields of its text model."""
    return {
        "vocabulary": "talking", "experts": 4,
        "tensors": kimi(is_packed="quantization_config" in fields),
        "config": {
            "architectures": ["KimiK3ForConditionalGeneration"], "model_type": "kimi_k3",
            "text_config": {**K3, **fields},
        },
    }  # fmt: skip


RAW = {
    "kimi-k3": kimi_case(),
    "kimi-k3-mxfp4": kimi_case(quantization_config=PACKED),
    "deepseek4": raw(
        "DeepseekV4ForCausalLM", deepseek4(is_fp8=False), experts=4, vocabulary="talking", **V4
    ),
    # The index keeps all entries: in which order equal ones come is llama.cpp's own.
    "deepseek4-plain": raw(
        "DeepseekV4ForCausalLM",
        plain(),
        experts=4,
        vocabulary="talking",
        computed=5,
        **{
            **V4,
            "index_topk": 64,
            "num_nextn_predict_layers": 0,
            "quantization_config": None,
            "expert_dtype": None,
        },
    ),
    "deepseek4-dspark": raw(
        "DeepseekV4ForCausalLM",
        dspark(),
        experts=4,
        vocabulary="talking",
        **{
            **V4,
            "num_nextn_predict_layers": 2,
            "dspark_noise_token_id": 3,
            "dspark_block_size": 4,
            "dspark_target_layer_ids": [0, 1, 2],
        },
    ),
    "deepseek4-fp8": raw(
        "DeepseekV4ForCausalLM", deepseek4(is_fp8=True), experts=4, vocabulary="talking", **V4
    ),
}
