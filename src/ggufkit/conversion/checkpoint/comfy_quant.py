"""Decodes weights that ComfyUI stores in FP8, MXFP8, NVFP4 or INT8, when rows are read.

Source: `convert_old_quants` and `_load_quantized_module` of ComfyUI, and the layouts of its
library comfy_kitchen, with F32 as the type that they decode to.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ggufkit.conversion.checkpoint.bitsandbytes import TableLookup
from ggufkit.conversion.checkpoint.dequantize import E8M0_NUMBERS, Scaled, byte_numbers, scaled
from ggufkit.conversion.checkpoint.packed_weights import StoredParts, decode_each, json_in, required
from ggufkit.conversion.checkpoint.safetensors import F8_E4M3, F8_E5M2
from ggufkit.conversion.tensors.arithmetic import AnyFloats, compute, read_floats
from ggufkit.conversion.tensors.moves import reshape
from ggufkit.errors import CheckpointError, brief
from ggufkit.format.types import tensor_type
from ggufkit.models.model import Tensor
from ggufkit.models.rows import ComputedRows
from ggufkit.system.mapped_file import Bytes

_F32: Final = tensor_type("F32")
_SETTINGS: Final = "comfy_quant"
_MARK: Final = "scaled_fp8"  # of the old form of FP8
_SCALES: Final = ("weight_scale", "scale_weight")
_PARTS: Final = {_SETTINGS, _MARK, *_SCALES, "weight_scale_2", "input_scale", "scale_input"}
# cuBLAS stores block scales in tiles: 4 groups of 32 rows side by side, 4 columns each.
_TILE_ROWS: Final = 128
_TILE_COLUMNS: Final = 4
_TILE_GROUPS: Final = 4
_E2M1: Final = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
_HADAMARD: Final = np.array(
    [[1, 1, 1, -1], [1, 1, -1, 1], [1, -1, 1, 1], [-1, 1, 1, 1]], np.float32
)
_ROTATIONS: Final = (4, 16, 64, 256, 1024, 4096)  # columns


def is_comfy_quant(stored: StoredParts) -> bool:
    """Whether weights among these tensors are stored in ComfyUI's way."""
    return any(name.rpartition(".")[2] in _PARTS for name in stored)


def comfy_quant(stored: StoredParts, layers: Mapping[str, Any]) -> list[Tensor]:
    """Return tensors with each weight decoded in its place, to F32.

    `layers` has the settings of layers that have no `comfy_quant` tensor. Raises CheckpointError,
    which lists every problem.
    """
    groups: dict[str, dict[str, Tensor]] = {}
    for name, tensor in stored.items():
        layer, _, part = name.rpartition(".")
        groups.setdefault(layer, {})[part] = tensor
    marks = {_SETTINGS, *_SCALES}
    quantized = [
        layer for layer, parts in groups.items() if parts.keys() & marks or layer in layers
    ]
    weights = decode_each(
        quantized, lambda layer: _decoded(layer, groups[layer], layers.get(layer))
    )
    tensors = {**stored, **{weight.name: weight for weight in weights}}
    return [tensor for name, tensor in tensors.items() if name.rpartition(".")[2] not in _PARTS]


def _decoded(layer: str, parts: StoredParts, settings: object) -> Tensor:
    fields = json_in(parts[_SETTINGS]) if _SETTINGS in parts else settings
    weight = parts.get("weight")
    if weight is None:
        raise CheckpointError(f"{layer} has scales, but no weight")
    if not isinstance(fields, Mapping):
        fields = {"format": "float8_e4m3fn" if weight.type in (F8_E4M3, F8_E5M2) else None}
    decode = _FORMATS.get(str(fields.get("format")))
    if decode is None:
        formats = ", ".join(_FORMATS)
        raise CheckpointError(
            f"{layer} has the format {brief(fields.get('format'))}; ggufkit decodes {formats}"
        )
    if "pre_quant_scale" in parts:
        raise CheckpointError(f"{layer} has scales of its inputs, which no GGUF file can hold")
    return decode(layer, parts, fields)


def _scale(layer: str, parts: StoredParts, kinds: tuple[str, ...]) -> Tensor:
    part = next((part for part in _SCALES if part in parts), _SCALES[0])
    return required(parts, f"{layer}.", part, kinds)


def _fp8(layer: str, parts: StoredParts, _fields: Mapping[str, Any]) -> Tensor:
    return scaled(parts["weight"], _scale(layer, parts, ("F32", "F16", "BF16")))


def _int8(layer: str, parts: StoredParts, fields: Mapping[str, Any]) -> Tensor:
    codes = required(parts, f"{layer}.", "weight", ("I8",))
    weight = scaled(codes, _scale(layer, parts, ("F32",)))
    inner = fields.get("params")
    settings = {**(inner if isinstance(inner, Mapping) else {}), **fields}
    if not settings.get("convrot"):
        return weight
    size = settings.get("convrot_groupsize", 256)
    if size not in _ROTATIONS or not weight.shape or weight.shape[-1] % size:
        raise CheckpointError(f"{layer} has the convrot_groupsize {brief(size)}")
    return compute(weight, functools.partial(_rotated, int(size)))


def _rotated(size: int, rows: AnyFloats) -> AnyFloats:
    """Undo the rotation of each `size` columns; the rotation is its own inverse."""
    matrix = functools.reduce(np.kron, [_HADAMARD] * ((size.bit_length() - 1) // 2))
    with np.errstate(invalid="ignore", over="ignore"):  # a file may hold anything
        rotated: AnyFloats = rows.reshape(-1, size) @ (matrix / np.float32(np.sqrt(size)))
    return rotated.reshape(rows.shape)


def _mxfp8(layer: str, parts: StoredParts, _fields: Mapping[str, Any]) -> Tensor:
    weight = required(parts, f"{layer}.", "weight", ("F8_E4M3",))
    powers = E8M0_NUMBERS.copy()
    powers[[0, -1]] = 0, np.inf  # as comfy_kitchen has them
    scales = _block_scales(layer, parts, _blocks(layer, weight.shape, 32), powers)
    return Tensor.over(weight.name, _F32, weight.shape, Scaled(weight, scales, (1, 32)))


def _nvfp4(layer: str, parts: StoredParts, _fields: Mapping[str, Any]) -> Tensor:
    codes = required(parts, f"{layer}.", "weight", ("U8",))
    shape = (*codes.shape[:-1], 2 * sum(codes.shape[-1:]))
    factor = required(parts, f"{layer}.", "weight_scale_2", ("F32",))
    if factor.elements != 1:
        raise CheckpointError(f"{factor.name} of shape {factor.shape} is not one number")
    blocks = _blocks(layer, shape, 16)
    scales = _block_scales(layer, parts, blocks, byte_numbers(F8_E4M3), factor)
    table = np.concatenate([_E2M1, -_E2M1])
    flat = reshape(scales, (-1, 1))
    rows = reshape(codes, (-1, 1))
    return Tensor.over(codes.name, _F32, shape, TableLookup(rows, table, flat, 16, shape[-1], _F32))


@dataclass(frozen=True, eq=False)
class BlockScales(ComputedRows):
    """Rows of block scales, from one-byte codes in the tiles of cuBLAS."""

    codes: Tensor
    numbers: npt.NDArray[np.float32]
    columns: int
    factor: Tensor | None

    def read(self, start: int, stop: int) -> Bytes:
        """Read whole tiles, and cut the rows out."""
        first, last = start // _TILE_ROWS, -(-stop // _TILE_ROWS)
        tiles = self.codes.source.read(first, last).reshape(
            last - first, -1, 32, _TILE_GROUPS, _TILE_COLUMNS
        )
        rows = tiles.transpose(0, 3, 2, 1, 4).reshape((last - first) * _TILE_ROWS, -1)
        begin = first * _TILE_ROWS
        numbers = self.numbers[rows[start - begin : stop - begin, : self.columns]]
        if self.factor is not None:
            with np.errstate(invalid="ignore", over="ignore"):  # a file may hold anything
                numbers = numbers * read_floats(self.factor, _F32, 0, 1).reshape(1)
        return np.ascontiguousarray(numbers, np.float32).view(np.uint8)


def _block_scales(
    layer: str,
    parts: StoredParts,
    blocks: tuple[int, int],
    numbers: npt.NDArray[np.float32],
    factor: Tensor | None = None,
) -> Tensor:
    codes = _scale(layer, parts, ("U8", "F8_E4M3", "F8_E8M0"))
    tiles = (-(-blocks[0] // _TILE_ROWS), -(-blocks[1] // _TILE_COLUMNS))
    count = tiles[1] * _TILE_ROWS * _TILE_COLUMNS
    if codes.elements != tiles[0] * count:
        raise CheckpointError(
            f"{codes.name} has {codes.elements:,} scales, not {tiles[0] * count:,}"
        )
    source = BlockScales(reshape(codes, (tiles[0], count)), numbers, blocks[1], factor)
    return Tensor.over(codes.name, _F32, blocks, source)


def _blocks(layer: str, shape: tuple[int, ...], width: int) -> tuple[int, int]:
    if len(shape) != 2 or not all(shape) or shape[1] % width:  # noqa: PLR2004 (a matrix)
        raise CheckpointError(f"{layer}.weight of shape {shape} has no blocks of {width} columns")
    return shape[0], shape[1] // width


_FORMATS: Final[dict[str, Callable[[str, StoredParts, Mapping[str, Any]], Tensor]]] = {
    "float8_e4m3fn": _fp8,
    "float8_e5m2": _fp8,
    "mxfp8": _mxfp8,
    "nvfp4": _nvfp4,
    "int8_tensorwise": _int8,
}
