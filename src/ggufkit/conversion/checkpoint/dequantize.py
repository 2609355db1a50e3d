"""Decodes quantized checkpoints: weights and scales become tensors that decode when read.

Source: `dequant_model` of llama.cpp's converter, and the formats' own libraries.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

import ggufkit._native as _native
from ggufkit.conversion.checkpoint.bitsandbytes import bitsandbytes
from ggufkit.conversion.checkpoint.fp4 import (
    MXFP4_FORMAT,
    NVFP4_FORMAT,
    is_nvfp4,
    join_mxfp4,
    nvfp4_blocks,
)
from ggufkit.conversion.checkpoint.grouped_blocks import with_exact_blocks
from ggufkit.conversion.checkpoint.packed_weights import (
    auto_round,
    awq,
    bitnet,
    gptq,
    pack_quantized,
)
from ggufkit.conversion.checkpoint.safetensors import F8_E4M3, F8_E5M2, F8_E8M0
from ggufkit.conversion.tensors.arithmetic import read_floats
from ggufkit.conversion.tensors.moves import reshape
from ggufkit.errors import CheckpointError, brief
from ggufkit.format.types import TensorType, tensor_type
from ggufkit.models.model import Tensor
from ggufkit.models.rows import ComputedRows
from ggufkit.system.mapped_file import Bytes

_F32: Final = tensor_type("F32")
_I8: Final = tensor_type("I8")
_SCALES: Final = ("F32", "F16", "BF16", F8_E8M0.name)  # of FP8
# The power of two that each byte of E8M0 means; the last byte is NaN.
E8M0_NUMBERS: Final = np.append(np.ldexp(np.float32(1), np.arange(255) - 127), np.nan).astype(
    np.float32
)
# Scales of activations, which llama.cpp does not use.
_UNUSED: Final = ("activation_scale", ".input_scale", ".k_scale", ".v_scale", ".qscale_act")


class Dequantized(NamedTuple):
    """The decoded tensors of a checkpoint; names of tensors left out, and of tensors from FP8."""

    tensors: list[Tensor]
    skipped: Sequence[str] = ()
    fp8: frozenset[str] = frozenset()


def dequantize(
    tensors: Iterable[Tensor], config: Mapping[str, Any], *, keep_quantized: bool = False
) -> Dequantized:
    """Return tensors with their scales applied, by the checkpoint's quantization method.

    With `keep_quantized`, weights that Q4_0, Q4_1 or Q8_0 hold exactly are in these types.
    Raises CheckpointError for a method that cannot be decoded, and for scales that do not fit.
    """
    inner = config.get("text_config")
    settings = config.get("quantization_config")
    if not settings and isinstance(inner, Mapping):
        settings = inner.get("quantization_config")
    stored = {tensor.name: tensor for tensor in tensors}
    if not isinstance(settings, Mapping) or not settings.get("quant_method"):
        return Dequantized(list(stored.values()))
    method = str(settings["quant_method"])
    if method not in _METHODS:
        methods = ", ".join(_METHODS)
        raise CheckpointError(
            f"ggufkit cannot decode checkpoints quantized by {brief(method)}",
            remedy=f"Use the original, unquantized checkpoint; ggufkit can decode {methods}",
        )
    weights = _METHODS[method](stored, settings)
    result = weights if isinstance(weights, Dequantized) else Dequantized(weights)
    if keep_quantized:
        return result._replace(tensors=with_exact_blocks(result.tensors))
    return result


# FP8 with scales for blocks, rows or the whole tensor.
@functools.cache
def byte_numbers(kind: TensorType) -> npt.NDArray[np.float32]:
    """Return the number that each byte of an FP8 type or of I8 means."""
    codes = np.arange(256, dtype=np.uint16)
    if kind == _I8:
        return codes.astype(np.int8).astype(np.float32)
    if kind == F8_E5M2:  # the upper byte of a half float
        return (codes << 8).view(np.float16).astype(np.float32)
    exponent, fraction = (codes >> 3) & 15, (codes & 7).astype(np.float32)
    normal = np.ldexp(1 + fraction / 8, exponent.astype(np.int32) - 7)
    magnitude = np.where(exponent == 0, np.ldexp(fraction, -9), normal)
    magnitude[codes & 127 == 127] = np.nan  # noqa: PLR2004 (all bits set; the type lacks infinity)
    return np.where(codes & 128, -magnitude, magnitude).astype(np.float32)


@dataclass(frozen=True, eq=False)
class Scaled(ComputedRows):
    """Rows of an FP8 tensor, each block times its scale."""

    weight: Tensor
    scale: Tensor
    block: tuple[int, int]

    def read(self, start: int, stop: int) -> Bytes:
        """Decode and scale rows."""
        data = np.ascontiguousarray(self.weight.source.read(start, stop))
        high, wide = self.block
        out, width = self.weight.shape[-2:]
        rows = np.arange(start, stop)
        scale_rows = rows // out * -(-out // high) + rows % out // high
        first, last = (int(scale_rows[0]), int(scale_rows[-1]) + 1) if len(rows) else (0, 0)
        if self.scale.type == F8_E8M0:
            scales = E8M0_NUMBERS[self.scale.source.read(first, last)]
        else:
            scales = np.ascontiguousarray(read_floats(self.scale, _F32, first, last), np.float32)
        numbers = np.empty((stop - start, width), np.float32)
        table = byte_numbers(self.weight.type)
        _native.look_up(data, table, scales, scale_rows - first, numbers, wide)
        return numbers.view(np.uint8)


def _scaled(weight: Tensor, scale: Tensor, block: object, *kinds: TensorType) -> Tensor:
    """Return an FP8 weight with its scales applied: one for each block or row, or for all."""
    if weight.type not in (F8_E4M3, F8_E5M2, *kinds) or len(weight.shape) < 2:  # noqa: PLR2004
        raise CheckpointError(f"{weight.name} has scales for an FP8 matrix but is not one")
    *outer, high, wide = weight.shape
    if isinstance(block, list) and len(block) == 2:  # noqa: PLR2004 (rows and columns)
        sizes = (int(block[0]), int(block[1]))
    else:
        sizes = (high if scale.elements == 1 else 1, wide)
    if min(sizes) < 1:
        raise CheckpointError(f"weight_block_size {brief(block)} is not a size")
    if scale.type.name not in _SCALES:
        raise CheckpointError(f"{scale.name} is {scale.type.name}: scales are {', '.join(_SCALES)}")
    sizes = (min(sizes[0], max(high, 1)), min(sizes[1], max(wide, 1)))
    needed = (*outer, -(-high // sizes[0]), -(-wide // sizes[1]))
    if scale.elements != int(np.prod(needed)):
        raise CheckpointError(f"{scale.name} has the shape {scale.shape}, and {needed} are needed")
    flat = reshape(scale, needed)
    return Tensor.over(weight.name, _F32, weight.shape, Scaled(weight, flat, sizes))


def scaled(weight: Tensor, scale: Tensor) -> Tensor:
    """Return an FP8 or I8 weight in F32, times one scale, or one for each entry of axis 0."""
    shape = weight.shape or (1,)
    matrix = reshape(weight, (-1, shape[-1]) if scale.elements == 1 else (shape[0], -1))
    return reshape(_scaled(matrix, scale, None, _I8), weight.shape)


def _scale_all(
    stored: dict[str, Tensor], suffixes: Mapping[str, str], block: object
) -> Dequantized:
    skipped = [name for name in stored if name.endswith(_UNUSED)]
    weights = {
        name: name.removesuffix(suffix) + instead
        for name in stored
        for suffix, instead in suffixes.items()
        if name.endswith(suffix)
    }
    tensors = {name: stored[name] for name in stored if name not in weights and name not in skipped}
    for scale, weight in weights.items():
        if weight not in stored:
            raise CheckpointError(f"the scale {scale} belongs to {weight}, which is not there")
        tensors[weight] = _scaled(stored[weight], stored[scale], block)
    return Dequantized(list(tensors.values()), skipped, frozenset(weights.values()))


def _fp8(tensors: dict[str, Tensor], settings: Mapping[str, Any]) -> Dequantized:
    suffixes = {"_scale_inv": "", ".qscale_weight": ".weight"}
    if any(name.endswith(".scale") and tensor.type == F8_E8M0 for name, tensor in tensors.items()):
        # DeepSeek V4: the experts are MXFP4.
        suffixes[".scale"] = ".weight"
        tensors = {tensor.name: tensor for tensor in join_mxfp4(tensors, "fp8")}
    return _scale_all(tensors, suffixes, settings.get("weight_block_size"))


def _modelopt(tensors: dict[str, Tensor], settings: Mapping[str, Any]) -> Dequantized:
    blocks, rest = nvfp4_blocks(tensors) if is_nvfp4(settings) else ([], tensors)
    plain = _scale_all(rest, {".weight_scale": ".weight"}, None)  # FP8
    return plain._replace(tensors=[*blocks, *plain.tensors])


def _compressed(tensors: dict[str, Tensor], settings: Mapping[str, Any]) -> Dequantized:
    groups = settings.get("config_groups")
    weights = [g.get("weights") for g in groups.values()] if isinstance(groups, Mapping) else []
    form = settings.get("format")
    if is_nvfp4(settings):
        return _modelopt(tensors, settings)
    if form == MXFP4_FORMAT:
        return Dequantized(join_mxfp4(tensors, "compressed-tensors"))
    is_known = form in ("float-quantized", "pack-quantized")
    if not is_known or len(weights) != 1 or not isinstance(weights[0], Mapping):
        raise CheckpointError(
            f"compressed-tensors of the format {brief(form)} cannot be decoded",
            remedy=f"{MXFP4_FORMAT}, {NVFP4_FORMAT}, and float-quantized and pack-quantized with "
            "one group, can",
        )
    if form == "pack-quantized":
        return Dequantized(pack_quantized(tensors, weights[0]))
    result = _scale_all(tensors, {".weight_scale": ".weight"}, weights[0].get("block_structure"))
    # The converter looks at these fields and not at the tensors.
    is_fp8 = (weights[0].get("type"), weights[0].get("num_bits")) == ("float", 8)
    return result if is_fp8 else result._replace(fp8=frozenset())


_METHODS: Final[
    dict[str, Callable[[dict[str, Tensor], Mapping[str, Any]], list[Tensor] | Dequantized]]
] = {
    "auto-round": auto_round,
    "awq": awq,
    "bitnet": lambda stored, _: bitnet(stored),
    "bitsandbytes": lambda stored, _: bitsandbytes(stored),
    "compressed-tensors": _compressed,
    "fp8": _fp8,
    "gptq": gptq,
    "modelopt": _modelopt,
    "mxfp4": lambda stored, _: join_mxfp4(stored, "mxfp4"),
}
