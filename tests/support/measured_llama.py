"""Tiny models for llama.cpp to run: a base, and versions of it that are further and further off."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import ggufkit
import small_llama

SCALE = 0.1  # of the embeddings, so that probabilities are neither 0 nor 1


def save(path: Path, noise: float = 0, **keys: object) -> Path:
    """Write the small Llama with that much noise in its matrices."""
    random = np.random.default_rng(3)
    tensors = {
        name: values if values.ndim == 1 else values + noise * random.standard_normal(values.shape)
        for name, values in small_llama.tensors().items()
    }
    tensors["token_embd.weight"] = tensors["token_embd.weight"] * SCALE
    whole = {name: values.astype(np.float32) for name, values in tensors.items()}
    ggufkit.save(path, whole, small_llama.keys(**keys))
    return path


def text(path: Path, letters: int = 400) -> Path:
    """Write a text of the letters that the small Llama knows."""
    path.write_text("".join(np.random.default_rng(4).choice(list("abc"), letters)))
    return path
