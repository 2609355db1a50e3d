"""Adapters as PEFT writes them, made from the names and shapes of a checkpoint's tensors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import tensors_file

RANK = 4
ALPHA = 8
WHOLE_RANK = 2
EMBEDDINGS = (
    "embed_tokens.weight", "embed_tokens_per_layer.weight", "wte.weight", "word_embeddings.weight",
    "shared.weight",
)  # fmt: skip
NEVER = ("norm", "conv1d", "wpe", "position", "token_type", "relative", "mtp.")
NOT_ADAPTED = ("norm", "conv", "embed", "wte", "wpe", "lm_head", "mtp.")


def factors(
    shapes: dict[str, tuple[int, ...]], dtype: str = "<f4", *, whole: bool = False
) -> dict[str, np.ndarray]:
    """Return random factors, by PEFT's names, for every matrix of a linear layer.

    With `whole` the embeddings, the head and the gates of convolutions are adapted as well, as
    trainers save them, and the attention has another rank (`rank_pattern`).
    """
    draw = np.random.default_rng(1)
    sizes: dict[str, tuple[int, ...]] = {}
    for name, shape in sorted(shapes.items()):
        is_linear = name.endswith(".weight") and len(shape) == 2
        if not is_linear or any(part in name for part in (NEVER if whole else NOT_ADAPTED)):
            continue
        rank = WHOLE_RANK if whole and "attn" in name else RANK
        stem = f"base_model.model.{name.removesuffix('.weight')}"
        if name.endswith(EMBEDDINGS):
            sizes[f"{stem}.base_layer.weight"] = shape  # PEFT saves it too
            sizes[f"{stem}.lora_embedding_A"] = (rank, shape[0])
            sizes[f"{stem}.lora_embedding_B"] = (shape[1], rank)
        else:
            sizes[f"{stem}.lora_A.weight"] = (rank, shape[1])
            sizes[f"{stem}.lora_B.weight"] = (shape[0], rank)
    return {name: draw.standard_normal(size).astype(dtype) for name, size in sizes.items()}


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
