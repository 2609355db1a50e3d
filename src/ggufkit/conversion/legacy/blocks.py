"""Decodes the blocks of GGML files from before GGUF, or rearranges them to today's blocks.

Before GGJT 2 (May 2023) a byte held two neighbouring elements; since then it holds one from the
first half of its block and one from the second. Before GGJT 3 the scales of Q4_0, Q4_1 and Q8_0
were float32, which today's blocks cannot hold. Q4_2 and Q4_3 do not exist any more. In the first
files, of March 2023, a row of Q4_0 or Q4_1 had all its scales first, separate from the numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ggufkit.conversion.checkpoint.fp4 import ggml_halves
from ggufkit.errors import TensorTypeError
from ggufkit.format.types import TENSOR_TYPES, TensorType, tensor_type
from ggufkit.system.mapped_file import Bytes

PAIRED: Final = 1  # the last version whose bytes hold neighbours
WIDE_SCALES: Final = 2  # the last version whose scales are float32
SCALES: Final = (1e-7, 1e2)  # the range of nearly all scales of weights that are not 0
MOSTLY: Final = 0.9  # share of scales in that range in a right layout; wrong ones have few
BYTE: Final = 8  # bits
HIGH_BIT: Final = 16  # value of an element's fifth bit
_PLAIN: Final = frozenset({"F32", "F16"})
_GONE: Final = frozenset({"Q4_2", "Q4_3"})
_FIRST: Final = frozenset({"Q4_0", "Q4_1"})  # the only types of the first files


@dataclass(frozen=True)
class Block:
    """The layout of a block: `scale`, optional `minimum`, optional fifth bits, numbers of `bits`.

    `center` is subtracted from each whole number before scaling. Numbers have 4 or 8 bits.
    """

    type: TensorType
    block_size: int
    scale: str
    has_minimum: bool = False
    has_fifth: bool = False
    center: int = 0
    bits: int = 4
    is_paired: bool = True
    has_scales_first: bool = False

    @property
    def fields(self) -> np.dtype[Any]:
        """The block as NumPy sees it."""
        minimum = [("m", self.scale)] if self.has_minimum else []
        fifth = [("h", "<u4")] if self.has_fifth else []
        numbers = ("q", "i1" if self.bits == BYTE else "u1", self.block_size * self.bits // BYTE)
        return np.dtype([("d", self.scale), *minimum, *fifth, numbers])

    def row_bytes(self, width: int) -> int:
        """Return the bytes of a row."""
        return width // self.block_size * self.fields.itemsize

    def blocks(self, packed: Bytes) -> npt.NDArray[Any]:
        """Return the blocks of rows, of shape (rows, blocks)."""
        if not self.has_scales_first:
            return packed.view(self.fields)
        blocks = np.empty((len(packed), packed.shape[1] // self.fields.itemsize), self.fields)
        start = 0
        for name in ("m", "d", "q") if self.has_minimum else ("d", "q"):
            part = blocks[name]
            stop = start + part[:1].nbytes
            part[...] = packed[:, start:stop].copy().view(part.dtype).reshape(part.shape)
            start = stop
        return blocks

    def is_plausible(self, packed: Bytes) -> bool:
        """Whether rows read in this layout have scales that weights could have."""
        blocks = self.blocks(packed)
        names = ("d", "m") if self.has_minimum else ("d",)
        scales = np.stack([np.abs(blocks[name]) for name in names])
        least, most = SCALES
        likely = (scales == 0) | ((scales > least) & (scales < most))
        return bool(likely.mean() > MOSTLY)

    def numbers(self, blocks: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
        """Return the whole numbers of blocks, of shape (blocks, elements)."""
        codes = blocks["q"]
        if codes.dtype == np.int8:
            return codes.astype(np.int32)
        pairs = np.stack((codes & 15, codes >> 4), axis=-1 if self.is_paired else -2)
        numbers = pairs.reshape(*blocks.shape, self.block_size).astype(np.int32)
        if self.has_fifth:
            bits = blocks["h"][..., None] >> np.arange(self.block_size, dtype=np.uint32) & 1
            numbers += HIGH_BIT * bits.astype(np.int32)
        return numbers

    def decoded(self, packed: Bytes) -> npt.NDArray[np.float32]:
        """Return rows as float32, computed in float32 as ggml did."""
        blocks = self.blocks(packed)
        scaled = (self.numbers(blocks) - self.center).astype(np.float32)
        scaled *= blocks["d"].astype(np.float32)[..., None]
        if self.has_minimum:
            scaled += blocks["m"].astype(np.float32)[..., None]
        return scaled.reshape(len(packed), -1)

    @property
    def stored(self) -> TensorType:
        """Today's type if it holds the same numbers in another order, else F32."""
        is_same = self.scale == "<f2" and self.type.name not in _GONE
        return self.type if is_same else tensor_type("F32")

    def rewritten(self, packed: Bytes) -> Bytes:
        """Return rows as blocks of the type `stored`: elements in today's order, or decoded."""
        packed = np.ascontiguousarray(packed)
        if self.stored != self.type:
            return self.decoded(packed).astype("<f4").view(np.uint8)
        blocks = packed.view(self.fields).copy()
        numbers = blocks["q"]
        halves = ggml_halves(np.ascontiguousarray(numbers), numbers.shape[-1])
        blocks["q"] = halves.reshape(numbers.shape)
        rows: Bytes = blocks.view(np.uint8).reshape(packed.shape)
        return rows


def block_of(type: TensorType, version: int) -> Block | None:
    """Return the layout of `type` in a file of GGJT `version` (0: older), None if it is today's.

    Raises TensorTypeError for types that files of this version cannot hold.
    """
    name = type.name
    is_paired = version <= PAIRED
    layouts = {
        "Q4_0": Block(type, 32, "<f4", center=8, is_paired=is_paired),
        "Q4_1": Block(type, 32, "<f4", has_minimum=True, is_paired=is_paired),
        "Q4_2": Block(type, 16, "<f2", center=8),
        "Q4_3": Block(type, 16, "<f2", has_minimum=True),
        "Q5_0": Block(type, 32, "<f2", has_fifth=True, center=16),
        "Q5_1": Block(type, 32, "<f2", has_minimum=True, has_fifth=True),
        "Q8_0": Block(type, 32, "<f4", bits=8),
    }
    is_old = is_paired or (version <= WIDE_SCALES and name in {"Q4_0", "Q4_1", "Q8_0"})
    if name in _PLAIN or (not is_old and name not in _GONE and type.id in TENSOR_TYPES):
        return None
    if name not in layouts or not is_old:
        raise TensorTypeError(f"files of this version cannot contain tensors of type {name}")
    return layouts[name]


def layout_of_rows(block: Block, packed: Bytes) -> Block | None:
    """Return the layout of rows in unversioned files, None if no layout is plausible.

    Only the scales themselves show whether scales come first in a row of such a file.
    """
    if block.type.name not in _FIRST:
        return block
    layouts = (block, replace(block, has_scales_first=True))
    return next((layout for layout in layouts if layout.is_plausible(packed)), None)
