"""NVFP4 of ModelOpt and compressed-tensors: codes and scales become ggml's blocks, unchanged.

Both sides give 16 elements a scale of FP8 and 4 bits each; a block of ggml has four such groups.
The scales of a whole matrix and of its activations become tensors of their own: llama.cpp
multiplies with them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from ggufkit.conversion.checkpoint.folder import Checkpoint
from ggufkit.conversion.checkpoint.mxfp4 import ggml_halves
from ggufkit.conversion.checkpoint.safetensors import F8_E4M3, U8
from ggufkit.conversion.tensors.arithmetic import compute, read_floats
from ggufkit.conversion.tensors.moves import renamed, reshape
from ggufkit.errors import CheckpointError
from ggufkit.format.types import tensor_type
from ggufkit.models.model import Tensor
from ggufkit.models.rows import Rewritten
from ggufkit.models.sources import from_array
from ggufkit.system.mapped_file import Bytes

NVFP4: Final = tensor_type("NVFP4")
NVFP4_FORMAT: Final = "nvfp4-pack-quantized"  # of compressed-tensors
# The ends of names for the scales of a matrix and of its activations, in architecture files.
SCALES: Final = (".scale", ".input_scale")
_ALGORITHM: Final = "NVFP4"
_PLAIN_ACTIVATIONS: Final = "W4A16_NVFP4"
_F32: Final = tensor_type("F32")
_GROUP: Final = 16  # elements that share a scale
_GROUP_BYTES: Final = _GROUP // 2
_GROUPS: Final = NVFP4.block_size // _GROUP
_MAGNITUDE: Final = 0x7F  # of a scale: ggml's has no sign
_SETTINGS: Final = "hf_quant_config.json"
_EXPERT: Final = re.compile(r"\.experts\.\d+\.")
_NEARLY, _NEARLY_OF_EXPERTS = 1e-6, 1.1e-5  # how far from 1 a scale may be that is left out
# Names of compressed-tensors, whose scales of matrices divide, and of ModelOpt.
_DIVISORS: Final = {
    ".weight_global_scale": ".weight_scale_2", ".input_global_scale": ".input_scale",
}  # fmt: skip


def _block_rows(codes: Bytes, scales: Bytes) -> Bytes:
    """Return rows of NVFP4 in ggml's order: their half bytes are moved."""
    halves = ggml_halves(codes, _GROUP_BYTES)
    sizes = scales.reshape(-1, _GROUPS) & _MAGNITUDE
    return np.concatenate([sizes, halves.reshape(len(sizes), -1)], axis=1)


def with_modelopt_settings(checkpoint: Checkpoint) -> Checkpoint:
    """Return a checkpoint with ModelOpt's own file of settings in its `quantization_config`."""
    settings = checkpoint.config.get("quantization_config")
    settings = settings if isinstance(settings, Mapping) else {}
    is_named = bool(settings.get("quant_algo"))
    own = None if is_named else (checkpoint.json(_SETTINGS) or {}).get("quantization")
    if not isinstance(own, Mapping):
        return checkpoint
    merged = {"quant_method": "modelopt", **settings, **own}
    return replace(checkpoint, config={**checkpoint.config, "quantization_config": merged})


def is_nvfp4(settings: Mapping[str, Any]) -> bool:
    """Whether the settings of a checkpoint name NVFP4; CheckpointError for an unknown kind."""
    algorithms = _fields_of(settings.get("quantized_layers"), "quant_algo")
    algorithms.append(settings.get("quant_algo"))
    if _PLAIN_ACTIVATIONS in algorithms:
        raise CheckpointError(
            f"ggufkit cannot convert {_PLAIN_ACTIVATIONS}",
            remedy="Use the original, unquantized checkpoint, or one of NVFP4",
        )
    formats = {str(form) for form in _fields_of(settings.get("config_groups"), "format")}
    is_mixed = settings.get("format") == "mixed-precision" and formats == {NVFP4_FORMAT}
    return _ALGORITHM in algorithms or settings.get("format") == NVFP4_FORMAT or is_mixed


def _fields_of(parts: object, key: str) -> list[Any]:
    values = parts.values() if isinstance(parts, Mapping) else ()
    return [part.get(key) for part in values if isinstance(part, Mapping)]


def nvfp4_blocks(tensors: Mapping[str, Tensor]) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Return NVFP4 matrices, each before its scales, and all other tensors by name.

    Raises CheckpointError for codes and scales that do not fit.
    """
    rest = _as_modelopt(tensors)
    weights: list[Tensor] = []
    for name in [name for name in rest if name.endswith(".weight")]:
        stem = name.removesuffix(".weight")
        scales = rest.get(f"{stem}.weight_scale")
        if scales is None or len(scales.shape) < 2:  # noqa: PLR2004 (of FP8)
            continue
        weights.append(_blocks(rest.pop(name), rest.pop(f"{stem}.weight_scale")))
        for end, stored in zip(SCALES, (".weight_scale_2", ".input_scale"), strict=True):
            weights.append(_number(f"{stem}{end}", rest.pop(f"{stem}{stored}", None)))
    # Scales of 1 are left out; of experts only if all scales of a layer are 1.
    needed = {_group(tensor.name) for tensor in weights if not _is_one(tensor)}
    return [tensor for tensor in weights if _group(tensor.name) in needed], rest


def _as_modelopt(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors under ModelOpt's names; tensors of compressed-tensors come last."""
    others: dict[str, Tensor] = {}
    packed: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        end = next((end for end in _DIVISORS if name.endswith(end)), None)
        if end:
            packed[name.removesuffix(end) + _DIVISORS[end]] = compute(tensor, np.reciprocal)
        elif name.endswith(".weight_packed"):
            weight = name.removesuffix("_packed")
            packed[weight] = renamed(tensor, weight)
        else:
            others[name] = tensor
    return {**others, **packed}


def _blocks(codes: Tensor, scales: Tensor) -> Tensor:
    width = 2 * sum(codes.shape[-1:])
    needed = (*codes.shape[:-1], width // _GROUP)
    if codes.type != U8 or scales.type != F8_E4M3 or scales.shape != needed:
        raise CheckpointError(f"{codes.name} of shape {codes.shape} lacks scales of NVFP4 that fit")
    if width % NVFP4.block_size:
        raise CheckpointError(
            f"{codes.name} has {width} columns, which blocks of {NVFP4.block_size} do not divide"
        )
    shape = (*codes.shape[:-1], width)
    source = Rewritten(_block_rows, (codes.source, scales.source))
    return Tensor.over(codes.name, NVFP4, shape, source)


def _number(name: str, scale: Tensor | None) -> Tensor:
    """Return a scale as a vector of one number, 1 where the checkpoint has none."""
    if scale is None:
        return from_array(name, np.ones(1, np.float32))
    if scale.elements != 1:
        raise CheckpointError(f"{scale.name} of shape {scale.shape} is not one number")
    return renamed(reshape(scale, (1,)), name)


def _group(name: str) -> str:
    return _EXPERT.sub(".experts.", name)


def _is_one(tensor: Tensor) -> bool:
    if tensor.type == NVFP4:
        return False
    number = float(read_floats(tensor, _F32, 0, 1).reshape(-1)[0])
    return abs(number - 1.0) < (_NEARLY_OF_EXPERTS if _EXPERT.search(tensor.name) else _NEARLY)
