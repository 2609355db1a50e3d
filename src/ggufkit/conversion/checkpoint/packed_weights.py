"""Decodes weights packed in few bits (GPTQ, AWQ, compressed-tensors, BitNet), when rows are read.

Source: `dequant_model` of llama.cpp's converter; for AWQ and 3 bits, the formats' own libraries.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

import ggufkit._native as _native
from ggufkit.conversion.tensors.arithmetic import read_floats
from ggufkit.conversion.tensors.moves import transpose
from ggufkit.conversion.tensors.row_sources import RowIndex
from ggufkit.errors import CheckpointError, ValueTypeError, brief
from ggufkit.format.types import tensor_type
from ggufkit.models.model import Tensor
from ggufkit.models.rows import ComputedRows
from ggufkit.quants.parallel import Floats
from ggufkit.system.mapped_file import Bytes

Codes = npt.NDArray[np.uint8]
StoredParts = Mapping[str, Tensor]

WORD_BITS: Final = 32
_F32: Final = tensor_type("F32")
_FLOATS: Final = ("F32", "F16", "BF16")
_WORDS: Final = ("I32",)
_WHOLE: Final = ("I32", "I64")
MAX_JSON_BYTES: Final = 1 << 16  # real descriptions of a weight have some two hundred
T = TypeVar("T")


@dataclass(frozen=True)
class WordPacking:
    """How words hold codes: `values` codes in each `words` words, code n of column `order[n]`."""

    bits: int
    values: int
    words: int = 1
    order: Sequence[int] | None = None

    def unpack(self, words: npt.NDArray[np.uint32], *, down: bool) -> Codes:
        """Return the codes of a matrix of words, along its rows or `down` its columns."""
        shape = list(words.shape)
        axis = 0 if down else 1
        shape[axis] = shape[axis] // self.words * self.values
        codes = np.empty(shape, np.uint8)
        order = list(self.order or range(self.values))
        _native.unpack(words, codes, self.bits, self.words, order, down)
        return codes

    def length(self, count: int) -> int:
        """Return the number of words for `count` values."""
        return -(-count // self.values) * self.words


AWQ: Final = WordPacking(4, 8, order=(0, 2, 4, 6, 1, 3, 5, 7))


@dataclass(frozen=True, eq=False)
class Unpacked:
    """Codes packed in words along rows or, with `down`, along columns."""

    words: Tensor
    packing: WordPacking
    down: bool = False

    def read(self, start: int, stop: int) -> Codes:
        """Return the codes of rows."""
        if not self.down:
            return self.packing.unpack(self._words(start, stop), down=False)
        first, last = start // self.packing.values, -(-stop // self.packing.values)
        words = self._words(first * self.packing.words, last * self.packing.words)
        skipped = first * self.packing.values
        return self.packing.unpack(words, down=True)[start - skipped : stop - skipped]

    def _words(self, start: int, stop: int) -> npt.NDArray[np.uint32]:
        words = np.ascontiguousarray(self.words.source.read(start, stop)).view("<u4")
        return np.require(words, np.uint32, ["C", "ALIGNED"])


class ColumnGroups(NamedTuple):
    """The groups of so many columns: of `size` neighbours each, or with `group_of` any others."""

    width: int
    size: int
    group_of: RowIndex | None = None


@dataclass(frozen=True, eq=False)
class Grouped(ComputedRows):
    """Rows of scale * (code - zero), for groups of columns."""

    codes: Unpacked
    zeros: Unpacked | None
    offset: int
    scales: Tensor
    groups: ColumnGroups

    def numbers(self, start: int, stop: int) -> tuple[Floats, npt.NDArray[np.int16]]:
        """Return the scales of the groups of rows, and their zero points."""
        scales = np.ascontiguousarray(read_floats(self.scales, _F32, start, stop), np.float32)
        zeros = np.full(scales.shape, self.offset, np.int16)
        if self.zeros is not None:
            zeros += self.zeros.read(start, stop)
        return scales, zeros

    def read(self, start: int, stop: int) -> Bytes:
        """Unpack and scale rows."""
        codes = self.codes.read(start, stop)
        scales, zeros = self.numbers(start, stop)
        width, size, group_of = self.groups
        numbers = np.empty((stop - start, width), np.float32)
        _native.center(codes, zeros, scales, numbers, size, group_of)
        return numbers.view(np.uint8)


# Common to the formats: a weight consists of parts, with the same suffixes in all weights.
def decode_each(names: Iterable[str], decode: Callable[[str], T]) -> list[T]:
    """Return what `decode` makes of each weight; CheckpointError lists every problem."""
    weights: list[T] = []
    problems: list[str] = []
    for name in names:
        try:
            weights.append(decode(name))
        except (CheckpointError, ValueTypeError) as error:  # noqa: PERF203 (each is reported)
            problems.append(error.message)
    if problems:
        raise CheckpointError(
            "the quantized weights cannot be decoded",
            problems,
            remedy="Download them again, or use the original, unquantized checkpoint",
        )
    return weights


def assemble(
    tensors: StoredParts, parts: Sequence[str], make: Callable[[str, StoredParts], Tensor]
) -> list[Tensor]:
    """Return tensors with `make` called for each weight; the first of `parts` marks a weight.

    Made tensors come last, as in llama.cpp's converter. Raises CheckpointError, which lists every
    problem.
    """
    stems = [name.removesuffix(parts[0]) for name in tensors if name.endswith(parts[0])]
    stored = {stem: {p: tensors[stem + p] for p in parts if stem + p in tensors} for stem in stems}
    used = {tensor.name for weight in stored.values() for tensor in weight.values()}
    weights = decode_each(stored, lambda stem: make(stem, stored[stem]))
    return [*(tensor for name, tensor in tensors.items() if name not in used), *weights]


def required(
    stored: StoredParts,
    stem: str,
    part: str,
    kinds: Sequence[str],
    shape: tuple[int, ...] | None = None,
) -> Tensor:
    """Return a part of a weight; CheckpointError if it is missing or has a wrong type or shape."""
    tensor = stored.get(part)
    if tensor is None:
        raise CheckpointError(f"{stem}{part} is missing")
    if tensor.type.name not in kinds:
        raise CheckpointError(f"{tensor.name} is of type {tensor.type}, not {' or '.join(kinds)}")
    if shape is not None and tensor.shape != shape:
        raise CheckpointError(f"{tensor.name} has the shape {tensor.shape}, not {shape}")
    return tensor


def required_matrix(stored: StoredParts, stem: str, part: str, kinds: Sequence[str]) -> Tensor:
    """Return a part of a weight that must be a matrix with elements."""
    tensor = required(stored, stem, part, kinds)
    if len(tensor.shape) != 2 or not tensor.elements:  # noqa: PLR2004
        raise CheckpointError(f"{tensor.name} of shape {tensor.shape} is not a matrix")
    return tensor


def json_in(tensor: Tensor) -> object:
    """Return the JSON in the bytes of a tensor, which describes a weight."""
    if tensor.type.name != "U8" or tensor.nbytes > MAX_JSON_BYTES:
        raise CheckpointError(f"{tensor.name} is not JSON in at most {MAX_JSON_BYTES:,} bytes")
    try:
        return json.loads(tensor.numpy().tobytes().decode())
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{tensor.name} is not JSON: {error}") from None


def _require_bits(settings: Mapping[str, Any], key: str, allowed: Sequence[int]) -> int:
    """Return a number of the configuration; CheckpointError if it is not one of `allowed`."""
    value = settings.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value not in allowed:
        text = f"{allowed[0]} to {allowed[-1]}" if isinstance(allowed, range) else brief(allowed)
        raise CheckpointError(f"quantization_config.{key} is {brief(value)}, not one of {text}")
    return value


def _require_word(
    settings: Mapping[str, Any], key: str, default: str, allowed: Sequence[str]
) -> str:
    value = settings.get(key, default)
    if not isinstance(value, str) or value.lower() not in allowed:
        raise CheckpointError(
            f"quantization_config.{key} {brief(value)} cannot be decoded",
            remedy=f"ggufkit can decode {', '.join(allowed)}",
        )
    return value.lower()


def _groups(
    tensor: Tensor | None, stem: str, width: int, scales: int, size: object
) -> ColumnGroups:
    """Return the groups of columns: from a tensor, else groups of `size` neighbours."""
    if tensor is not None:
        if tensor.type.name not in _WHOLE or tensor.shape != (width,):
            actual = f"{tensor.type} of the shape {tensor.shape}"
            raise CheckpointError(f"{tensor.name} is {actual}, not a number for each of {width}")
        index: RowIndex = tensor.numpy().astype(np.int64)
        if index.min() < 0 or index.max() >= scales:
            raise CheckpointError(f"{tensor.name} names groups beyond the {scales} with scales")
        step = max(width // scales, 1)
        is_regular = np.array_equal(index, np.arange(width) // step)
        return ColumnGroups(width, step, None if is_regular else index)
    if isinstance(size, bool) or not isinstance(size, int) or size == 0 or size < -1:
        raise CheckpointError(f"group_size {brief(size)} is not a size")
    step = width if size == -1 else size
    if -(-width // step) != scales:
        raise CheckpointError(
            f"{stem} has {scales} scales in a row, and groups of {step} in {width} columns"
        )
    return ColumnGroups(width, step)


def gptq(stored: StoredParts, settings: Mapping[str, Any]) -> list[Tensor]:
    """Decode GPTQ: transposed, packed along columns; the first version stores zeros minus one."""
    bits = _require_bits(settings, "bits", (2, 3, 4, 8))
    version = _require_word(settings, "checkpoint_format", "gptq", ("gptq", "gptq_v2"))
    # Values follow each other without gaps.
    values, words = (WORD_BITS, bits) if WORD_BITS % bits else (WORD_BITS // bits, 1)
    offset = 1 if version == "gptq" else 0
    make = functools.partial(
        _transposed, settings, WordPacking(bits, values, words), is_down=False, offset=offset
    )
    return assemble(stored, (".qweight", ".qzeros", ".scales", ".g_idx"), make)


def awq(stored: StoredParts, settings: Mapping[str, Any]) -> list[Tensor]:
    """Decode AWQ for its `gemm` kernels: eight columns in a word, in an order of their own."""
    _require_bits(settings, "bits", (4,))
    _require_word(settings, "version", "gemm", ("gemm",))
    make = functools.partial(_transposed, settings, AWQ, is_down=True, offset=0)
    return assemble(stored, (".qweight", ".qzeros", ".scales"), make)


def auto_round(stored: StoredParts, settings: Mapping[str, Any]) -> list[Tensor]:
    """Decode AutoRound's checkpoints, which are packed as GPTQ's or as AWQ's."""
    formats = ("auto_round:auto_gptq", "auto_gptq", "auto_round:auto_awq", "auto_awq")
    form = _require_word(settings, "packing_format", formats[0], formats)
    return (awq if form.endswith("awq") else gptq)(stored, settings)


def _transposed(  # noqa: PLR0913 (what the formats differ in)
    settings: Mapping[str, Any],
    packing: WordPacking,
    stem: str,
    stored: StoredParts,
    *,
    is_down: bool,
    offset: int,
) -> Tensor:
    """Return a weight whose transposed codes are packed along rows or down columns."""
    words = required_matrix(stored, stem, ".qweight", _WORDS)
    scales = required_matrix(stored, stem, ".scales", _FLOATS)
    (height, _), (groups, rows) = words.shape, scales.shape
    width = height if is_down else height // packing.words * packing.values
    shape = (width, packing.length(rows)) if is_down else (packing.length(width), rows)
    required(stored, stem, ".qweight", _WORDS, shape)
    zeros = required(stored, stem, ".qzeros", _WORDS, (groups, packing.length(rows)))
    column_groups = _groups(stored.get(".g_idx"), stem, width, groups, settings.get("group_size"))
    codes = Unpacked(transpose(words), packing, down=is_down)
    zero_codes = Unpacked(transpose(zeros), packing, down=True)
    source = Grouped(codes, zero_codes, offset, transpose(scales), column_groups)
    return Tensor.over(f"{stem}.weight", _F32, (rows, width), source)


def pack_quantized(stored: StoredParts, weights: Mapping[str, Any]) -> list[Tensor]:
    """Decode compressed-tensors' `pack-quantized`; `weights` describes the groups."""
    bits = _require_bits(weights, "num_bits", range(1, 9))
    packing = WordPacking(bits, WORD_BITS // bits)  # upper bits of a word may stay unused
    _require_word(weights, "type", "int", ("int",))
    strategy = _require_word(weights, "strategy", "group", ("group", "channel"))
    size = weights.get("group_size") if strategy == "group" else -1

    def make(stem: str, layer: StoredParts) -> Tensor:
        words = required_matrix(layer, stem, ".weight_packed", _WORDS)
        scales = required_matrix(layer, stem, ".weight_scale", _FLOATS)
        sizes = required(layer, stem, ".weight_shape", _WHOLE, (2,)).numpy().tolist()
        rows, width = scales.shape[0], int(sizes[1])
        if sizes[0] != rows or words.shape != (rows, packing.length(width)):
            raise CheckpointError(
                f"{stem}.weight should have the shape {sizes}, but its words have {words.shape} "
                f"and its scales {scales.shape}"
            )
        column_groups = _groups(layer.get(".weight_g_idx"), stem, width, scales.shape[1], size)
        zeros = None
        if ".weight_zero_point" in layer:
            shape = (packing.length(rows), scales.shape[1])
            words_of_zeros = required(layer, stem, ".weight_zero_point", _WORDS, shape)
            zeros = Unpacked(words_of_zeros, packing, down=True)
        offset = 1 << (packing.bits - 1) if zeros is None else 0
        source = Grouped(Unpacked(words, packing), zeros, offset, scales, column_groups)
        return Tensor.over(f"{stem}.weight", _F32, (rows, width), source)

    parts = ("packed", "scale", "shape", "zero_point", "g_idx")
    return assemble(stored, [f".weight_{part}" for part in parts], make)


# BitNet.

_SCALE: Final = ".weight_scale"
_VALUES: Final = 4  # in a byte
_BITS: Final = 2


@dataclass(frozen=True, eq=False)
class PackedQuarters(ComputedRows):
    """Rows of (code - 1) / scale; the bits of a byte are of rows in each quarter of the matrix."""

    packed: Tensor
    scale: np.float32

    def read(self, start: int, stop: int) -> Bytes:
        """Unpack and scale rows."""
        height = self.packed.shape[0]  # of a quarter
        codes = np.empty((stop - start, self.packed.shape[1]), np.uint8)
        for quarter in range(start // height, -(-stop // height)):
            before = quarter * height
            first, last = max(start, before), min(stop, before + height)
            data = self.packed.source.read(first - before, last - before)
            codes[first - start : last - start] = data >> (_BITS * quarter) & (_VALUES - 1)
        numbers = (codes.astype(np.float32) - 1) / self.scale
        return numbers.view(np.uint8)


def bitnet(stored: StoredParts) -> list[Tensor]:
    """Decode each matrix that has a scale; CheckpointError lists every problem."""
    stems = [name.removesuffix(_SCALE) for name in stored if name.endswith(_SCALE)]
    weights = decode_each(stems, functools.partial(_unpacked, stored))
    others = {name: tensor for name, tensor in stored.items() if not name.endswith(_SCALE)}
    return list({**others, **{weight.name: weight for weight in weights}}.values())


def _unpacked(stored: StoredParts, stem: str) -> Tensor:
    scale = required(stored, "", stem + _SCALE, _FLOATS, (1,))
    packed = required_matrix(stored, "", f"{stem}.weight", ("U8", "I8"))
    number = np.float32(read_floats(scale, _F32, 0, 1).reshape(-1)[0])
    shape = (_VALUES * packed.shape[0], packed.shape[1])
    return Tensor.over(packed.name, _F32, shape, PackedQuarters(packed, number))
