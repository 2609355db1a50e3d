"""Read fields of bits from blocks, with NumPy or another array library."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

import ggufkit._native as _native
from ggufkit.format.types import TensorType, tensor_type
from ggufkit.quants import kernels
from ggufkit.quants.ik_levels import IK_LEVELS, trellis
from ggufkit.quants.parallel import Floats

_LEVELS: Final = _native.level_tables()
_SCALES: Final = {"mxfp4_scales": ("MXFP4", 1), "nvfp4_scales": ("NVFP4", 4)}
LOOKUP_TABLES: Final = (*_LEVELS, *_SCALES, *IK_LEVELS, "trellis")


@functools.cache
def lookup_table(name: str) -> Floats:
    """Return a table of `LOOKUP_TABLES`: a number for each index, or a point for each."""
    if name in _SCALES:
        kind, offset = _SCALES[name]  # with a level of 1, a block gives the scale of each byte
        blocks = np.zeros((256, tensor_type(kind).block_bytes), np.uint8)
        blocks[:, 0], blocks[:, offset] = np.arange(256), 1
        row = tensor_type(kind)
        values = np.empty((256, row.block_size), np.float32)
        kernels.decode(blocks, row, values.reshape(-1), streaming=False)
        return np.ascontiguousarray(values[:, 0])
    if name == "trellis":
        return trellis()
    if name in IK_LEVELS:
        return IK_LEVELS[name]
    data, width = _LEVELS[name]
    levels = np.frombuffer(data, np.int8).astype(np.float32)
    return levels if width == 1 else levels.reshape(-1, width)


AnyArray = Any  # of NumPy, or a torch.Tensor


class ArrayLibrary(NamedTuple):
    """What the layouts need of an array library beyond operators; dtypes have NumPy's names."""

    bits: Callable[[AnyArray, str], AnyArray]  # bytes as numbers of a dtype
    cast: Callable[[AnyArray, str], AnyArray]  # numbers as another dtype
    steps: Callable[[AnyArray, int, int], AnyArray]  # like an array: 0 to a stop, by a step
    where: Callable[[AnyArray, AnyArray, AnyArray], AnyArray]  # by a mask: numbers, or others
    concat: Callable[[tuple[AnyArray, ...]], AnyArray]  # columns of all parts
    lookup: Callable[[str, AnyArray], AnyArray]  # entries of a `lookup_table`
    repeat: Callable[[AnyArray, int], AnyArray]  # each row so many times


NUMPY: Final = ArrayLibrary(
    bits=lambda data, dtype: np.ascontiguousarray(data).view(dtype),
    cast=lambda data, dtype: data.astype(dtype),
    steps=lambda data, stop, step: np.arange(0, stop, step, dtype=data.dtype),
    where=np.where,
    concat=lambda parts: np.concatenate(parts, 1),
    lookup=lambda table, indexes: lookup_table(table)[indexes],
    repeat=lambda rows, count: np.repeat(rows, count, 0),
)


@dataclass(frozen=True)
class Blocks:
    """Blocks as rows of bytes, and the library of the array."""

    data: AnyArray
    library: ArrayLibrary

    def half(self, offset: int) -> AnyArray:
        """Return the half at a byte as float32, one in a row."""
        return self.floats(self.library.bits(self.data[:, offset : offset + 2], "float16"))

    def single(self, offset: int) -> AnyArray:
        """Return the float32 at a byte, one in a row."""
        return self.library.bits(self.data[:, offset : offset + 4], "float32")

    def signed(self, start: int, stop: int) -> AnyArray:
        """Return bytes as signed numbers."""
        return self.library.bits(self.data[:, start:stop], "int8")

    def fields(self, start: int, stop: int, bits: int, stride: int) -> AnyArray:
        """Return fields of `bits`; the fields of one byte belong to elements `stride` apart."""
        return self.spread(self.data[:, start:stop], bits, stride)

    def spread(self, data: AnyArray, bits: int, stride: int) -> AnyArray:
        """Return the fields of `bits` in `data`."""
        count, width = data.shape
        shifts = self.library.steps(data, 8, bits).reshape(1, 1, -1, 1)
        grouped = data.reshape(count, width // stride, 1, stride)
        return ((grouped >> shifts) & ((1 << bits) - 1)).reshape(count, width * 8 // bits)

    def words(self, start: int, stop: int, width: int) -> AnyArray:
        """Return little-endian words of `width` bytes as int32."""
        parts = self.ints(self.data[:, start:stop])
        words = parts[:, ::width]
        for byte in range(1, width):
            words = words | (parts[:, byte::width] << 8 * byte)
        return words

    def digits(self, start: int, stop: int, count: int) -> AnyArray:
        """Return `count` digits of base 3 of each byte: the first ones of all bytes, and so on."""
        data = self.ints(self.data[:, start:stop])
        return self.library.concat(tuple((((data * 3**i) & 255) * 3) >> 8 for i in range(count)))

    def ints(self, data: AnyArray) -> AnyArray:
        """Return numbers as int32."""
        return self.library.cast(data, "int32")

    def floats(self, data: AnyArray) -> AnyArray:
        """Return numbers as float32."""
        return self.library.cast(data, "float32")

    def around(self, codes: AnyArray, middle: int) -> AnyArray:
        """Return codes of fewer than eight bits less `middle`, as signed bytes."""
        return self.library.cast(codes, "int8") - middle


def separate_blocks(data: AnyArray, type: TensorType, library: ArrayLibrary) -> Blocks:
    """Return the blocks of whole rows, each after a copy of its row's prefix."""
    size, prefix = type.block_bytes, type.row_prefix
    if not prefix:
        return Blocks(data.reshape(-1, size), library)
    rows = data.reshape(-1, data.shape[-1])
    blocks = rows[:, prefix:].reshape(-1, size)
    first = library.repeat(rows[:, :prefix], len(blocks) // max(len(rows), 1))
    return Blocks(library.concat((first, blocks)), library)


@dataclass(frozen=True)
class BlockParts:
    """The parts of blocks; the first axis of each array counts blocks.

    `fields` are the stored numbers by ggml's names, such as `d` (the scale of the whole block),
    `scales` (of its groups, as stored) and `points` (numbers of grid points). `scales` and
    `offsets` are those of each group, ready to use; types without offsets have None. `levels` are
    the integers that a group's scale multiplies, one for each element. `codes` are the stored
    numbers that give the levels: one for each element, or points of a grid and bytes of signs.
    """

    fields: dict[str, AnyArray]
    scales: AnyArray
    levels: AnyArray
    offsets: AnyArray | None = None
    codes: tuple[AnyArray, ...] = ()

    def values(self) -> AnyArray:
        """Return the elements: equal to those that `dequantize` gives."""
        levels = self.levels
        if "shifts" in self.fields:  # added first: an infinite scale times zero is not a number
            shifts = self.fields["shifts"]
            levels = (by_group(levels, shifts) + shifts[..., None]).reshape(levels.shape)
        products = by_group(levels, self.scales) * self.scales[..., None]
        if self.offsets is None or levels is not self.levels:
            return products.reshape(levels.shape)
        products = by_group(products.reshape(levels.shape), self.offsets)
        return (products + self.offsets[..., None]).reshape(levels.shape)


def by_group(elements: AnyArray, groups: AnyArray) -> AnyArray:
    """Return elements with an axis of their own for the groups."""
    count, width = elements.shape
    return elements.reshape(count, groups.shape[1], width // groups.shape[1])


BlockLayout = Callable[[Blocks], BlockParts]


def signed_bytes(scale: Callable[[Blocks, int], AnyArray], start: int, stop: int) -> BlockLayout:
    """Return the layout of blocks that begin with a scale, and have a signed byte per element."""

    def split(blocks: Blocks) -> BlockParts:
        d = scale(blocks, 0)
        return BlockParts({"d": d}, d, blocks.signed(start, stop))

    return split
