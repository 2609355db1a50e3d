"""Facts from names and shapes of an image or video model: parts, channels, programs.

Source: `loader.py` of ComfyUI-GGUF (December 2025), `model_loader.cpp` of stable-diffusion.cpp
(August 2026), and `load_gguf_checkpoint` of diffusers 0.42.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ggufkit.diffusion.architecture import (
    MODEL,
    DiffusionArchitecture,
    Shapes,
    architecture_of,
    parts_of,
    prefix_of,
    recognize,
)

COMFYUI_GGUF: Final = "ComfyUI-GGUF"
SD_CPP_PROGRAM: Final = "stable-diffusion.cpp"
DIFFUSERS: Final = "diffusers"
SHAPE_KEY: Final = "comfy.gguf.orig_shape."
# The values of general.architecture that ComfyUI-GGUF loads.
COMFYUI_ARCHITECTURES: Final = frozenset(
    ("flux", "sd1", "sdxl", "sd3", "aura", "hidream", "cosmos", "ltxv", "hyvid", "wan", "lumina2",
     "qwen_image")
)  # fmt: skip
_NOT_BY_NAMES: Final = ("qwen_image",)  # it also recognizes all others in files without keys
DIFFUSERS_TYPES: Final = frozenset(
    ("F32", "F16", "BF16", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0", "Q6_K", "Q5_K", "Q4_K", "Q3_K",
     "Q2_K", "IQ4_NL", "IQ4_XS")
)  # fmt: skip
_PIXELS: Final = 8  # along a side that the VAE turns into one number


@dataclass(frozen=True)
class PipelineFacts:
    """Facts about a file of an image or video model; None or empty if its shapes do not tell them.

    `channels` go into the model, as the VAE makes them; a mask or a second picture counts too.
    `max_side` is the longest side of a picture in pixels, where positions are learned.
    """

    title: str | None
    parts: list[str]
    channels: int | None
    max_side: int | None
    readers: list[str]


def pipeline_facts(
    general: str, shapes: Shapes, types: Iterable[str], keys: Iterable[str]
) -> PipelineFacts:
    """Return the facts about a file; `general` is its `general.architecture`, "" for none."""
    prefix = prefix_of(shapes)
    bare = {name.removeprefix(prefix): shape for name, shape in shapes.items()}
    arch = architecture_of(general, bare) if general else recognize(bare)
    is_reshaped = any(key.startswith(SHAPE_KEY) for key in keys)
    return PipelineFacts(
        arch.title if arch else None,
        list(parts_of(shapes)) or ([MODEL] if arch else []),
        _channels(arch, bare) if arch else None,
        _max_side(arch, bare) if arch else None,
        list(_readers(arch, general, frozenset(types), is_reshaped=is_reshaped)),
    )


def _readers(
    arch: DiffusionArchitecture | None, general: str, types: frozenset[str], *, is_reshaped: bool
) -> Iterable[str]:
    names = COMFYUI_ARCHITECTURES if general else COMFYUI_ARCHITECTURES.difference(_NOT_BY_NAMES)
    if arch and arch.architecture in names:
        yield COMFYUI_GGUF
    is_part = arch is None and not general  # such as a VAE
    if is_part or (arch and SD_CPP_PROGRAM in arch.loaders and not is_reshaped):
        yield SD_CPP_PROGRAM
    if arch and general and DIFFUSERS in arch.loaders and types <= DIFFUSERS_TYPES:
        yield DIFFUSERS


def _channels(arch: DiffusionArchitecture, shapes: Shapes) -> int | None:
    if not arch.input:
        return None
    name, patch = arch.input
    shape = shapes.get(name, ())
    if len(shape) > 2:  # noqa: PLR2004 (a convolution)
        return shape[1]
    return shape[1] // patch**2 if len(shape) > 1 else None


def _max_side(arch: DiffusionArchitecture, shapes: Shapes) -> int | None:
    positions = shapes.get(arch.positions, ())
    if not arch.input or len(positions) < 2:  # noqa: PLR2004 (rows and columns)
        return None
    return math.isqrt(positions[-2]) * arch.input[1] * _PIXELS
