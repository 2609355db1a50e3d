"""Which tensors llama-quantize converts: matrices of weights, except those it always keeps.

Source: `tensor_allows_quantization` in llama.cpp's `llama-quant.cpp`.
"""

from __future__ import annotations

import functools
from typing import Final

from ggufkit.diffusion.architecture import base_architecture
from ggufkit.models.layers import BLOCK
from ggufkit.models.model import Tensor
from ggufkit.quantization.choice.diffusion_rules import is_quantized_in_diffusion
from ggufkit.quantization.recipes import PROGRAMS
from ggufkit.quants.kernels import is_integer

CACHED_NAMES: Final = 1 << 14  # of tensors, whose names are the same in every recipe


def is_eligible(tensor: Tensor, architecture: str = "", program: str | None = None) -> bool:
    """Whether llama.cpp, or ik_llama.cpp as `program`, quantizes a tensor of this name and shape.

    Tensors of integers are not eligible: they hold no weights, and llama.cpp fails on them.
    """
    if is_integer(tensor.type) or axes(tensor.shape) < 2:  # noqa: PLR2004
        return False
    if diffusion := base_architecture(architecture):
        return is_quantized_in_diffusion(tensor, diffusion)
    return _has_eligible_name(tensor.name, architecture, program)


def without_layer(name: str) -> str:
    """Return the name without its "blk.N", or the whole name if it has no layer.

    No part that the caller searches for overlaps the prefix.
    """
    match = BLOCK.match(name)
    return name[match.end(1) :] if match else name


@functools.lru_cache(maxsize=CACHED_NAMES)
def _has_eligible_name(name: str, architecture: str, program: str | None) -> bool:
    keeps = PROGRAMS[program]
    # llama.cpp compares like this, so it also accepts every name of five characters.
    if name.rfind("weight") != len(name) - 6 or name in keeps.kept_names:
        return False
    parts = keeps.kept_parts + keeps.kept_parts_of.get(architecture, ())
    suffix = without_layer(name)
    return not any(part in suffix for part in parts)


def axes(shape: tuple[int, ...]) -> int:
    """Return the number of axes as ggml counts them: leading axes of length 1 are left out."""
    for i, length in enumerate(shape[:-1]):
        if length > 1:
            return len(shape) - i
    return 1
