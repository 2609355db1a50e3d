"""The cases of matrices in NVFP4, as ModelOpt and compressed-tensors publish them."""

from __future__ import annotations

import json
from typing import Any

from raw_shapes import ATTENTION, ENDS, LLAMA, NORMS, Names, heads, raw

MODELOPT = {"codes": ".weight", "whole": ".weight_scale_2", "activations": ".input_scale"}
PACKED = {
    "codes": ".weight_packed", "whole": ".weight_global_scale",
    "activations": ".input_global_scale",
}  # fmt: skip
EXPERTS: Names = {
    "model.layers.{i}.mlp.gate.weight": (4, 64),
    **{
        f"model.layers.{{i}}.mlp.experts.{{x}}.{name}_proj.weight": (64, 64)
        for name in ("gate", "up", "down")
    },
}
SETTINGS = {
    "producer": {"name": "modelopt"},
    "quantization": {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head"]},
}


def nvfp4(names: Names, ends: dict[str, str], *, scale: str = "small") -> dict[str, Any]:
    """Return the names with codes and scales in the place of each matrix of a projection."""
    shapes_by_name: dict[str, Any] = {}
    for name, shape in names.items():
        if "proj" not in name:
            shapes_by_name[name] = shape
            continue
        (rows, width), stem = shape, name.removesuffix(".weight")
        shapes_by_name |= {
            stem + ends["codes"]: ((rows, width // 2), "uint8"),
            f"{stem}.weight_scale": ((rows, width // 16), "float8_e4m3fn"),
            stem + ends["whole"]: ((1,), scale),
            stem + ends["activations"]: ((1,), "one" if "q_proj" in name else scale),
        }
    return shapes_by_name


WIDE: Names = {name: tuple(128 if x == 96 else x for x in shape) for name, shape in LLAMA.items()}
CASES: dict[str, Any] = {}
RAW: dict[str, Any] = {
    "llama-nvfp4": raw(
        "LlamaForCausalLM", nvfp4(WIDE, MODELOPT), model_type="llama", intermediate_size=128,
        quantization_config={"quant_method": "modelopt", "quant_algo": "NVFP4"},
    ),
    "llama-nvfp4-packed": raw(
        "LlamaForCausalLM", nvfp4(WIDE, PACKED), model_type="llama", intermediate_size=128,
        quantization_config={
            "quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized",
            "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "float"}}},
        },
    ),
    "qwen3moe-nvfp4": raw(
        "Qwen3MoeForCausalLM",
        ENDS | NORMS | ATTENTION | heads(16) | nvfp4(EXPERTS, MODELOPT, scale="few-ones"),
        experts=4, model_type="qwen3_moe", head_dim=16, num_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=64, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[],
    ) | {"files": {"hf_quant_config.json": json.dumps(SETTINGS)}},
    "llama-fp8-modelopt": raw(
        "LlamaForCausalLM",
        {
            end: shape
            for name, rows in LLAMA.items()
            for end, shape in (
                {
                    name: (rows, "float8_e4m3fn"), f"{name}_scale": ((1,), "small"),
                    name.replace("weight", "input_scale"): ((1,), "small"),
                } if "proj" in name else {name: rows}
            ).items()
        },
        model_type="llama", quantization_config={"quant_method": "modelopt", "quant_algo": "FP8"},
    ),
}  # fmt: skip
