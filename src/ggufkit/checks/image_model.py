"""Checks image and video models: what ComfyUI-GGUF, stable-diffusion.cpp or diffusers refuse."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ggufkit.checks.model_view import ARCHITECTURE, ModelView, Violation, at_key, at_tensor
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
