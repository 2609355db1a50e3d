"""Adapters as PEFT writes them, made from the names and shapes of a checkpoint's tensors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import tensors_file

RANK = 4
ALPHA = 8
NOT_ADAPTED = ("norm", "conv", "embed", "wte", "wpe", "lm_head", "mtp.")


def factors(shapes: dict[str, tuple[int, ...]], dtype: str = "<f4") -> dict[str, np.ndarray]:
    """Return random factors, by PEFT's names, for every matrix of a linear layer."""
    draw = np.random.default_rng(1)
    arrays = {}
    for name, shape in sorted(shapes.items()):
        is_linear = name.endswith(".weight") and len(shape) == 2
        if not is_linear or any(part in name for part in NOT_ADAPTED):
            continue
        stem = f"base_model.model.{name.removesuffix('.weight')}"
        for letter, size in (("A", (RANK, shape[1])), ("B", (shape[0], RANK))):
            arrays[f"{stem}.lora_{letter}.weight"] = draw.standard_normal(size).astype(dtype)
    return arrays


def write_adapter(
    folder: Path,
    tensors: dict[str, np.ndarray],
    *,
    base: str = "org/Some-Model-7B",
    **config: object,
) -> Path:
    """Write the folder of an adapter."""
    folder.mkdir(parents=True)
    (folder / "adapter_model.safetensors").write_bytes(tensors_file.safetensors_bytes(tensors))
    settings = {
        "peft_type": "LORA",
        "r": RANK,
        "lora_alpha": ALPHA,
        "base_model_name_or_path": base,
    }
    (folder / "adapter_config.json").write_text(json.dumps(settings | config))
    (folder / "README.md").write_text(
        f"---\nbase_model: {base}\nlicense: mit\ntags:\n- lora\n---\n"
    )
    return folder
