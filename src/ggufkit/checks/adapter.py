"""Checks the tensors of LoRA adapters: what llama.cpp refuses when it loads one.

Source: `llama_adapter_lora_init_impl` in llama.cpp's `llama-adapter.cpp`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ggufkit.checks.model_view import ModelView, Violation, at_key, at_tensor
from ggufkit.models.model import Model, Tensor

GENERAL_TYPE: Final = "general.type"
KIND: Final = "adapter.type"
LORA_A: Final = ".lora_a"
LORA_B: Final = ".lora_b"
EMBEDDING: Final = "token_embd.weight"  # its `lora_a` is stored transposed
_IGNORED: Final = "_norm.weight"  # by llama.cpp


def about_adapter(view: ModelView) -> Iterator[Violation]:
    """Check an adapter: its kind, and that each matrix has two factors that fit."""
    if view.text(GENERAL_TYPE) != "adapter":
        return
    if view.text(KIND) != "lora":
        yield at_key("adapter-kind", KIND, found=view.text(KIND))
        return
    for tensor, what in tensor_faults(view.model):
        yield at_tensor("adapter-tensor", tensor, what=what)


def tensor_faults(model: Model) -> Iterator[tuple[Tensor, str]]:
    """Yield the tensors of a LoRA adapter that cannot be used, and why."""
    for name, tensor in model.tensors.items():
        stem, suffix = name[: -len(LORA_A)], name[-len(LORA_A) :]
        if suffix not in (LORA_A, LORA_B):
            if not name.endswith(_IGNORED):
                yield tensor, "is not a factor of a matrix"
            continue
        other = model.tensors.get(stem + (LORA_B if suffix == LORA_A else LORA_A))
        if other is None:
            yield tensor, "lacks the other factor of its matrix"
        elif suffix == LORA_B and not _fit(stem, other.shape, tensor.shape):
            shapes = f"{list(other.shape)} and {list(tensor.shape)}"
            yield tensor, f"has no rank in common with the other factor: the shapes are {shapes}"


def _fit(stem: str, a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    if min(len(a), len(b)) < 2:  # noqa: PLR2004 (a matrix)
        return False
    rank = a[-1] if stem == EMBEDDING else a[-2]
    return rank == b[-1] > 0 and a[:-2] == b[:-2]
