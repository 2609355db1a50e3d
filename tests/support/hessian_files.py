"""Hessian files for tests, made of inputs, without llama.cpp."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import ggufkit
from ggufkit.imatrix.hessian_file import blocks_of, columns_of, moments_tensors
from ggufkit.quants.gptq import cut_columns

AnyInputs = npt.NDArray[Any]


def inputs_of(width: int, tokens: int = 512, matrices: int = 1, seed: int = 0) -> AnyInputs:
    """Return inputs that go together: (parts, matrices, tokens, width)."""
    rng = np.random.default_rng(seed)
    mixing = rng.standard_normal((width, width)) * (np.arange(1, width + 1) ** -0.6)[:, None]
    inputs = rng.standard_normal((2, matrices, tokens, width)) @ mixing
    return inputs.astype(np.float32)


def save_hessian(
    path: Path,
    inputs: dict[str, AnyInputs],
    *,
    weights: dict[str, AnyInputs] | None = None,
    band: int | None = None,
    **keys: object,
) -> Path:
    """Write the Hessian of these inputs by tensor; `keys` replace those of the file.

    `weights` are those of the model that it says it was computed on. With a `band`, it has only
    blocks of so many columns.
    """
    tensors: dict[str, Any] = {}
    for name, matrices in (weights or {}).items():
        tensors[f"{name}.first_row"] = matrices.reshape(-1, matrices.shape[-1])[0]
    for name, rows in inputs.items():
        sums = np.zeros((*rows.shape[:2], rows.shape[3], columns_of(rows.shape[3], band)), "f4")
        for place in np.ndindex(*rows.shape[:2]):
            blocks = blocks_of(sums[place])
            parts = cut_columns(rows[place], [len(block) for block in blocks])
            for block, part in zip(blocks, parts, strict=True):
                block[:] = part.T @ part
        counts = np.full(sums.shape[:2], rows.shape[2], np.int64)
        tensors |= {tensor.name: tensor for tensor in moments_tensors(name, sums, counts)}
    names = ggufkit.typed("array[string]", list(inputs))
    metadata = {
        "general.type": "hessian",
        "hessian.dataset": "wiki",
        "hessian.chunk_size": np.uint32(512),
        "hessian.token_count": np.uint64(1024),
        "hessian.matrices": names,
        "hessian.owners": names,
    }
    if band:
        metadata["hessian.band"] = np.uint32(band)
    changed = {f"hessian.{key}": value for key, value in keys.items()}
    ggufkit.save(path, tensors, metadata | changed)
    return path
