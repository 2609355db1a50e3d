"""Checks what is no language model: projectors, image and video models, LoRA adapters.

Sources: llama.cpp's `clip.cpp` and `llama_adapter_lora_init_impl`, and what ComfyUI-GGUF,
stable-diffusion.cpp and diffusers refuse.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ggufkit.checks.model_view import (
    ARCHITECTURE,
    EMBEDDING,
    ModelView,
    Violation,
    at_key,
    at_tensor,
)
from ggufkit.checks.requirements import any_block, names_in_llama_cpp
from ggufkit.diffusion.architecture import is_diffusion
from ggufkit.diffusion.pipeline_facts import (
    COMFYUI_ARCHITECTURES,
    COMFYUI_GGUF,
    DIFFUSERS,
    DIFFUSERS_TYPES,
    SHAPE_KEY,
    pipeline_facts,
)
from ggufkit.format.coerce import plain
from ggufkit.models.model import PROJECTOR, Model, Tensor

# The encoders, the beginning of the names of their tensors, and the keys that each needs.
_ENCODERS: Final = {
    "vision": ("v", ("image_size", "patch_size", "image_mean", "image_std")),
    "audio": ("a", ("num_mel_bins",)),
}
_KEYS: Final = (
    "embedding_length",
    "attention.head_count",
    "feed_forward_length",
    "block_count",
    "projection_dim",
    "attention.layer_norm_epsilon",
)
_BLOCK: Final = re.compile(r"([va])\.blk\.(\d+)\.")
_UNEVEN: Final = ("gemma3nv",)  # its blocks are groups of others, and the count is made up


def about_projector(view: ModelView) -> Iterator[Violation]:
    """Yield every rule that a projector breaks."""
    if view.architecture != PROJECTOR:
        return
    present = [name for name in _ENCODERS if view.metadata.get(f"clip.has_{name}_encoder") is True]
    if not present and not view.metadata.get("clip.has_gen_audio_encoder"):
        yield _missing("clip.has_vision_encoder")
    for encoder in present:
        yield from _about_encoder(view, encoder)
    pattern = read_names()
    unread = (own for own in view.model.tensors.values() if not pattern.fullmatch(own.name))
    for tensor in {any_block(extra.name): extra for extra in unread}.values():  # one of each name
        yield at_tensor("tensor-unread", tensor)


def _about_encoder(view: ModelView, encoder: str) -> Iterator[Violation]:
    letter, own = _ENCODERS[encoder]
    kind_key = f"clip.{encoder}.projector_type"
    if kind_key not in view.metadata:
        kind_key = "clip.projector_type"
    kind = view.text(kind_key)
    if kind_key not in view.metadata:
        yield _missing(kind_key)
    elif kind not in names_in_llama_cpp("projector_types"):
        yield at_key("projector-unknown", kind_key, kind=kind)
    for name in (*_KEYS, *own):
        if f"clip.{encoder}.{name}" not in view.metadata:
            yield _missing(f"clip.{encoder}.{name}")
    key = f"clip.{encoder}.block_count"
    blocks = view.number(key)
    matches = (_BLOCK.match(name) for name in view.model.tensors)
    layers = max((int(m[2]) + 1 for m in matches if m and m[1] == letter), default=0)
    if blocks is not None and blocks > layers and kind not in _UNEVEN:
        yield at_key("block-count", key, blocks=blocks, layers=layers)


@functools.cache
def read_names() -> re.Pattern[str]:
    """Return a pattern of the names of all tensors that llama.cpp may read of a projector."""
    text = Path(__file__).with_name("projector_tensors.txt").read_text("utf-8")
    names = (re.escape(line) for line in text.splitlines() if not line.startswith("#"))
    encoders = (re.sub("^%s", "[a-z.]+", name) for name in names)
    return re.compile("|".join(n.replace("%d", r"\d+").replace("%s", r"\w+") for n in encoders))


def _missing(key: str) -> Violation:
    return Violation("key-required", {"key": key, "architecture": PROJECTOR}, key=ARCHITECTURE)


def about_image_model(view: ModelView) -> Iterator[Violation]:
    """Check what the programs that read such files require; other models break no rule."""
    tensors, general = view.model.tensors, view.architecture
    if not is_diffusion(general, tensors):
        return
    if general and general not in COMFYUI_ARCHITECTURES:
        yield at_key("diffusion-architecture", ARCHITECTURE, architecture=general)
    reshaped = [key for key in view.metadata if key.startswith(SHAPE_KEY)]
    yield from (at_key("diffusion-shape", key) for key in reshaped if not _fits(view, key))
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    readers = pipeline_facts(general, shapes, (), reshaped).readers
    if reshaped and readers == [COMFYUI_GGUF]:
        yield at_key("diffusion-reshaped", reshaped[0], count=len(reshaped))
    refused = [t for t in tensors.values() if t.type.name not in DIFFUSERS_TYPES]
    if refused and DIFFUSERS in readers:
        yield at_tensor("diffusion-type", refused[0], type=refused[0].type)


def _fits(view: ModelView, key: str) -> bool:
    """Whether a key with the original shape of a tensor is one that ComfyUI-GGUF can use."""
    tensor = view.model.tensors.get(key.removeprefix(SHAPE_KEY))
    if tensor is None or view.metadata.type_name(key) != "array[int32]":
        return tensor is None
    shape = plain(view.metadata[key])
    return isinstance(shape, list) and math.prod(shape) == tensor.elements


GENERAL_TYPE: Final = "general.type"
KIND: Final = "adapter.type"
LORA_A: Final = ".lora_a"
LORA_B: Final = ".lora_b"
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
    rank = a[-1] if stem == EMBEDDING else a[-2]  # its `lora_a` is stored transposed
    return rank == b[-1] > 0 and a[:-2] == b[:-2]
