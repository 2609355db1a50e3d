"""Decodes weights that bitsandbytes quantized to 4 bits (nf4, fp4) or 8, when rows are read.

Source: that library's own `dequantize_4bit` and `int8_vectorwise_dequant`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

import numpy as np
import numpy.typing as npt

import ggufkit._native as _native
from ggufkit.conversion.checkpoint.packed_weights import StoredParts, required
from ggufkit.conversion.checkpoint.safetensors import MAX_AXES
from ggufkit.conversion.tensors.arithmetic import read_floats
from ggufkit.conversion.tensors.moves import reshape
from ggufkit.errors import CheckpointError, brief
from ggufkit.format.types import TensorType, tensor_type
from ggufkit.models.model import Tensor
from ggufkit.models.rows import Made
from ggufkit.quants import codec
from ggufkit.system.mapped_file import Bytes

Float32s = npt.NDArray[np.float32]

MAX_AXIS: Final = 1 << 48  # longer than any file can hold
MAX_BLOCK: Final = 4096  # the library's largest; each chunk of rows also reads up to a block more
MAX_STATE_BYTES: Final = 1 << 16  # real descriptions of a weight have some two hundred
_MARK: Final = ".quant_state.bitsandbytes__"
_SCALES: Final = "SCB"  # of rows of 8 bits
_LAYOUT: Final = "weight_format"
_BY_ROWS: Final = 0  # the only layout that current versions write
_STEP: Final = np.float32(1 / 127)
_F32: Final = tensor_type("F32")
_TYPES: Final = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}


@dataclass(frozen=True, eq=False)
class Scales:
    """One scale for each block: a float, or with `table` a code that has scales of its own."""

    tensor: Tensor
    table: Float32s | None = None
    outer: Float32s | None = None
    block: int = 1
    offset: float = 0.0

    def read(self, start: int, stop: int) -> Float32s:
        """Return the scales of blocks."""
        if self.table is None or self.outer is None:
            return read_floats(self.tensor, _F32, start, stop).reshape(-1)
        codes = self.tensor.source.read(start, stop).reshape(-1)
        outer = self.outer[np.arange(start, stop) // self.block]
        scales: Float32s = self.table[codes] * outer + np.float32(self.offset)
        return scales


@dataclass(frozen=True, eq=False)
class Looked(Made):
    """Rows whose 4-bit codes, upper half first, index `table`; each block has a scale."""

    codes: Tensor
    table: Float32s
    scales: Scales
    block: int
    width: int
    type: TensorType

    def read(self, start: int, stop: int) -> Bytes:
        """Look up and scale rows."""
        begin, end = start * self.width, stop * self.width
        pairs = np.ascontiguousarray(self.codes.source.read(begin // 2, -(-end // 2)).reshape(-1))
        first, into = divmod(begin, self.block)
        scales = np.ascontiguousarray(self.scales.read(first, -(-end // self.block)), np.float32)
        numbers = np.empty(end - begin, np.float32)
        table = np.require(self.table, np.float32, ["C", "ALIGNED"])
        _native.look_up_pairs(pairs, table, scales, numbers, begin % 2, into, self.block)
        return codec.quantize(numbers.reshape(-1, self.width), self.type, threads=1)


@dataclass(frozen=True, eq=False)
class Stepped(Made):
    """Rows of 8-bit integers, each times its row's scale / 127."""

    codes: Tensor
    scales: Tensor

    def read(self, start: int, stop: int) -> Bytes:
        """Scale rows."""
        codes = self.codes.source.read(start, stop).view(np.int8).astype(np.float32)
        scales = read_floats(self.scales, _F32, start, stop)
        with np.errstate(invalid="ignore", over="ignore"):  # a checkpoint may hold NaN
            numbers: Float32s = codes * scales * _STEP
        return numbers.view(np.uint8)


def bitsandbytes(held: StoredParts, _settings: Mapping[str, Any]) -> list[Tensor]:
    """Return tensors with each weight decoded in its place, to the type before quantization.

    Raises CheckpointError, which lists every problem.
    """
    kept, problems = dict(held), []
    for name in held:
        try:
            made, used = _decoded(held, name)
        except CheckpointError as error:
            problems.append(error.message)
            continue
        kept.update(made)
        for part in used:
            kept.pop(part, None)
    if problems:
        raise CheckpointError("the quantized weights are incomplete", problems)
    return list(kept.values())


def _decoded(held: StoredParts, name: str) -> tuple[dict[str, Tensor], list[str]]:
    """Return the weight that the tensor `name` belongs to, by name, and the tensors it replaces."""
    weight, is_state, _ = name.partition(_MARK)
    if is_state:
        made, used = _four_bits(held, weight, name)
        return {weight: made}, used
    if not name.endswith(f".{_SCALES}"):
        return {}, []
    weight = f"{name.removesuffix(_SCALES)}weight"
    made, used = _eight_bits(held, weight, name)
    return {weight: made}, used


def _eight_bits(held: StoredParts, name: str, scales_name: str) -> tuple[Tensor, list[str]]:
    codes = required(held, "", name, ("I8",))
    layout = name.removesuffix("weight") + _LAYOUT
    if len(codes.shape) != 2 or not codes.elements:  # noqa: PLR2004
        raise CheckpointError(f"{name} of shape {codes.shape} is not a matrix")
    if layout in held and held[layout].numpy().tolist() != _BY_ROWS:
        raise CheckpointError(
            f"{layout} is not {_BY_ROWS}, for rows: ggufkit does not know other layouts"
        )
    scales = required(held, "", scales_name, ("F32",), (codes.shape[0],))
    source = Stepped(codes, reshape(scales, (-1, 1)))
    return Tensor.over(name, _F32, codes.shape, source), [scales_name, layout]


def _four_bits(held: StoredParts, name: str, state_name: str) -> tuple[Tensor, list[str]]:
    state = _State.of(held[state_name])
    shape, block, kind = state.shape(), state.size("blocksize"), state.type()
    count = math.prod(shape)
    codes = _flat(required(held, "", name, ("U8",)), -(-count // 2))
    table = _table(held, f"{name}.quant_map", 16)
    scales = _scales(held, name, state, -(-count // block))
    made = Tensor.over(name, kind, shape, Looked(codes, table, scales, block, shape[-1], kind))
    parts = ("absmax", "quant_map", "nested_absmax", "nested_quant_map")
    return made, [state_name, *(f"{name}.{part}" for part in parts)]


def _scales(held: StoredParts, name: str, state: _State, count: int) -> Scales:
    absmax = _flat(required(held, "", f"{name}.absmax", ("U8", "F32")), count)
    if absmax.type.name == "F32":
        return Scales(absmax)
    block = state.size("nested_blocksize")
    outer = required(held, "", f"{name}.nested_absmax", ("F32",), (-(-count // block),))
    table = _table(held, f"{name}.nested_quant_map", 256)
    return Scales(absmax, table, outer.numpy(), block, state.number("nested_offset"))


def _table(held: StoredParts, name: str, length: int) -> Float32s:
    table: Float32s = required(held, "", name, ("F32",), (length,)).numpy()
    return table


def _flat(tensor: Tensor, count: int) -> Tensor:
    if tensor.elements != count:
        raise CheckpointError(f"{tensor.name} has {tensor.elements:,} elements, not {count:,}")
    return reshape(tensor, (count, 1))


@dataclass(frozen=True)
class _State:
    """The library's description of a weight."""

    name: str
    fields: Mapping[str, Any]

    @classmethod
    def of(cls, tensor: Tensor) -> _State:
        """Read the description; CheckpointError if it is malformed."""
        if tensor.type.name != "U8" or tensor.nbytes > MAX_STATE_BYTES:
            raise CheckpointError(f"{tensor.name} does not describe a weight")
        try:
            found = json.loads(tensor.numpy().tobytes().decode())
        except (ValueError, RecursionError) as error:
            raise CheckpointError(f"{tensor.name} is not JSON: {error}") from None
        if not isinstance(found, dict):
            raise CheckpointError(f"{tensor.name} does not contain a JSON object")
        return cls(tensor.name, found)

    def size(self, key: str) -> int:
        """Return a block size."""
        value = self.fields.get(key)
        if not _is_size(value, MAX_BLOCK):
            raise self._refusal(key)
        return value

    def shape(self) -> tuple[int, ...]:
        """Return the shape of the weight."""
        sizes = self.fields.get("shape")
        if not isinstance(sizes, list) or not 0 < len(sizes) <= MAX_AXES:
            raise self._refusal("shape")
        if not all(_is_size(size, MAX_AXIS) for size in sizes):
            raise self._refusal("shape")
        return tuple(sizes)

    def type(self) -> TensorType:
        """Return the type that the weight was quantized from."""
        kind = _TYPES.get(str(self.fields.get("dtype")))
        if kind is None:
            raise self._refusal("dtype")
        return tensor_type(kind)

    def number(self, key: str) -> float:
        """Return a float."""
        value = self.fields.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._refusal(key)
        if abs(value) > float(np.finfo(np.float32).max):
            raise self._refusal(key)
        return float(value)

    def _refusal(self, key: str) -> CheckpointError:
        return CheckpointError(f"{self.name} has the {key} {brief(self.fields.get(key))}")


def _is_size(value: object, limit: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= limit
