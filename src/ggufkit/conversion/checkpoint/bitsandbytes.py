"""Decodes weights that bitsandbytes quantized to 4 bits (nf4, fp4) or 8, when rows are read.

Source: that library's own `dequantize_4bit` and `int8_vectorwise_dequant`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

import ggufkit._native as _native
from ggufkit.conversion.checkpoint.packed_weights import (
    StoredParts,
    decode_each,
    json_in,
    required,
    required_matrix,
)
from ggufkit.conversion.checkpoint.safetensors import MAX_AXES
from ggufkit.conversion.tensors.arithmetic import compute, read_floats, scale_rows, times
from ggufkit.conversion.tensors.moves import reshape
from ggufkit.errors import CheckpointError, brief
from ggufkit.format.types import TensorType, tensor_type
from ggufkit.models.model import Tensor
from ggufkit.models.rows import ComputedRows
from ggufkit.quants import codec
from ggufkit.system.mapped_file import Bytes
from ggufkit.validation.typed_values import MAX_FLOAT32, finite_number, integer, json_list

Float32s = npt.NDArray[np.float32]

MAX_AXIS: Final = 1 << 48  # longer than any file can hold
MAX_BLOCK: Final = 4096  # the library's largest; each chunk of rows also reads up to a block more
STATE_MARK: Final = ".quant_state.bitsandbytes__"
_SCALES: Final = "SCB"  # of rows of 8 bits
_LAYOUT: Final = "weight_format"
_BY_ROWS: Final = 0  # the only layout that current versions write
_STEP: Final = 1 / 127
_F32: Final = tensor_type("F32")
_TYPES: Final = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}


@dataclass(frozen=True, eq=False)
class TableLookup(ComputedRows):
    """Rows whose 4-bit codes, upper half first, index `table`; each block has a scale, in order."""

    codes: Tensor
    table: Float32s
    scales: Tensor
    block: int
    width: int
    type: TensorType

    def read(self, start: int, stop: int) -> Bytes:
        """Look up and scale rows."""
        begin, end = start * self.width, stop * self.width
        pairs = np.ascontiguousarray(self.codes.source.read(begin // 2, -(-end // 2)).reshape(-1))
        first, into = divmod(begin, self.block)
        stored = read_floats(self.scales, _F32, first, -(-end // self.block))
        scales = np.ascontiguousarray(stored.reshape(-1), np.float32)
        numbers = np.empty(end - begin, np.float32)
        table = np.require(self.table, np.float32, ["C", "ALIGNED"])
        _native.look_up_pairs(pairs, table, scales, numbers, begin % 2, into, self.block)
        return codec.quantize(numbers.reshape(-1, self.width), self.type, threads=1)


def bitsandbytes(stored: StoredParts) -> list[Tensor]:
    """Return tensors with each weight decoded in its place, to the type before quantization.

    Raises CheckpointError, which lists every problem.
    """
    marks = [name for name in stored if STATE_MARK in name or name.endswith(f".{_SCALES}")]
    decode = functools.partial(_decoded, stored)
    tensors = dict(stored)
    for weight, parts in decode_each(marks, decode):
        tensors[weight.name] = weight
        for part in parts:
            tensors.pop(part, None)
    return list(tensors.values())


def _decoded(stored: StoredParts, mark: str) -> tuple[Tensor, list[str]]:
    if STATE_MARK in mark:
        return _four_bits(stored, mark.partition(STATE_MARK)[0], mark)
    stem = mark.removesuffix(_SCALES)
    codes, layout = required_matrix(stored, "", f"{stem}weight", ("I8",)), stem + _LAYOUT
    if layout in stored and stored[layout].numpy().tolist() != _BY_ROWS:
        raise CheckpointError(
            f"{layout} is not {_BY_ROWS}, for rows: ggufkit does not know other layouts"
        )
    scales = required(stored, "", mark, ("F32",), (codes.shape[0],))
    scaled = scale_rows(codes, scales.numpy())
    return compute(scaled, functools.partial(times, _STEP)), [mark, layout]


def _four_bits(stored: StoredParts, name: str, mark: str) -> tuple[Tensor, list[str]]:
    state = json_in(stored[mark])
    if not isinstance(state, dict):
        raise CheckpointError(f"{mark} does not contain a JSON object")
    sizes = json_list(state.get("shape"), f"{mark}: shape")
    shape = tuple(integer(n, f"{mark}: shape", least=1, most=MAX_AXIS) for n in sizes)
    if not 0 < len(shape) <= MAX_AXES:
        raise CheckpointError(f"{mark}: shape is {brief(shape)}, not one of 1 to {MAX_AXES} axes")
    if str(state.get("dtype")) not in _TYPES:
        types = " or ".join(_TYPES)
        raise CheckpointError(f"{mark}: dtype is {brief(state.get('dtype'))}, not {types}")
    kind = tensor_type(_TYPES[str(state["dtype"])])
    block = integer(state.get("blocksize"), f"{mark}: blocksize", least=1, most=MAX_BLOCK)
    count = math.prod(shape)
    codes = _flat(required(stored, "", name, ("U8",)), -(-count // 2))
    table = _table(stored, f"{name}.quant_map", 16)
    absmax = _flat(required(stored, "", f"{name}.absmax", ("U8", "F32")), -(-count // block))
    scales = absmax if absmax.type.name == "F32" else _nested(stored, name, absmax, state)
    source = TableLookup(codes, table, scales, block, shape[-1], kind)
    parts = ("absmax", "quant_map", "nested_absmax", "nested_quant_map")
    replaced = [mark, *(f"{name}.{part}" for part in parts)]
    return Tensor.over(name, kind, shape, source), replaced


def _nested(stored: StoredParts, name: str, absmax: Tensor, state: Mapping[str, Any]) -> Tensor:
    size, offset = state.get("nested_blocksize"), state.get("nested_offset")
    block = integer(size, f"{name}: nested_blocksize", least=1, most=MAX_BLOCK)
    count = -(-absmax.elements // block)
    outer = required(stored, "", f"{name}.nested_absmax", ("F32",), (count,))
    table = _table(stored, f"{name}.nested_quant_map", 256)
    number = finite_number(offset, f"{name}: nested_offset", most=MAX_FLOAT32)
    scale = functools.partial(_scaled_codes, table, (block, np.float32(number)))
    return compute(absmax, scale, outer.numpy)


def _scaled_codes(
    table: Float32s, blocks: tuple[int, np.float32], codes: Float32s, start: int, outer: Float32s
) -> Float32s:
    """Return scales from their codes: blocks of scales have a scale too, and one offset."""
    size, offset = blocks
    places = np.arange(start, start + len(codes)) // size
    return table[codes.astype(np.intp)] * outer[places, None] + offset


def _table(stored: StoredParts, name: str, length: int) -> Float32s:
    return required(stored, "", name, ("F32",), (length,)).numpy()


def _flat(tensor: Tensor, count: int) -> Tensor:
    if tensor.elements != count:
        raise CheckpointError(f"{tensor.name} has {tensor.elements:,} elements, not {count:,}")
    return reshape(tensor, (count, 1))
