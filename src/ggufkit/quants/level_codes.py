"""Choose levels for given scales, and write them into blocks: the inverse of `block_parts`.

A type is here if its elements have levels of their own, or share a point of a grid with neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from ggufkit.format.types import TensorType
from ggufkit.quants.lookup_tables import lookup_table
from ggufkit.quants.parallel import Floats
from ggufkit.system.mapped_file import Bytes

CodeNumbers = npt.NDArray[np.integer[Any]]


class LevelCodes(Protocol):
    """How a type stores levels: `codes` numbers for every `unit` elements."""

    @property
    def unit(self) -> int:
        """Elements whose levels are chosen together."""

    @property
    def codes(self) -> int:
        """Numbers that a unit stores."""

    def nearest(self, wanted: Floats, weights: Floats) -> CodeNumbers:
        """Return the codes (codes, n) whose levels are nearest to `wanted` (unit, n)."""

    def levels(self, codes: CodeNumbers) -> Floats:
        """Return the levels (unit, n) of codes."""

    def put(self, codes: CodeNumbers, blocks: Bytes) -> Bytes:
        """Return `blocks` with other codes and the same scales; both have a row per block."""


# Types with a level for each element.


class _BitField(NamedTuple):
    """Where blocks hold `bits` bits of each code: those in one byte are of elements `apart`."""

    start: int
    stop: int
    bits: int
    apart: int


@dataclass(frozen=True)
class _ElementCodes:
    """CodeNumbers that count from the level `lowest`, or that number a `table`; low bits first."""

    fields: tuple[_BitField, ...]
    lowest: int = 0
    table: str = ""
    unit: int = 1
    codes: int = 1

    def nearest(self, wanted: Floats, _weights: Floats) -> CodeNumbers:
        """Return the nearest codes."""
        if self.table:
            known = lookup_table(self.table)
            indexes: CodeNumbers = np.searchsorted((known[1:] + known[:-1]) / 2, wanted)
            return indexes
        top = (1 << sum(field.bits for field in self.fields)) - 1
        found: CodeNumbers = np.clip(np.rint(wanted - np.float32(self.lowest)), 0, top).astype(
            np.int32
        )
        return found

    def levels(self, codes: CodeNumbers) -> Floats:
        """Return the levels of codes."""
        if self.table:
            return lookup_table(self.table)[codes]
        return (codes + self.lowest).astype(np.float32)

    def put(self, codes: CodeNumbers, blocks: Bytes) -> Bytes:
        """Return blocks with these codes."""
        return _with_fields(blocks, codes, self.fields)


def _with_fields(blocks: Bytes, codes: CodeNumbers, fields: tuple[_BitField, ...]) -> Bytes:
    made: Bytes = blocks.copy()
    shift = 0
    for start, stop, bits, apart in fields:
        part = ((codes >> shift) & ((1 << bits) - 1)).astype(np.uint8)
        made[:, start:stop] = _joined_bits(part, bits, apart)
        shift += bits
    return made


def _joined_bits(fields: Bytes, bits: int, apart: int) -> Bytes:
    """Return bytes of fields of `bits`: those in one byte belong to elements `apart`."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8).reshape(1, 1, -1, 1)
    grouped = fields.reshape(len(fields), -1, 8 // bits, apart)
    found: Bytes = np.bitwise_or.reduce(grouped << shifts, axis=2).reshape(len(fields), -1)
    return found


# Types whose levels are points of a grid.


@dataclass(frozen=True)
class _GridCodes:
    """A point for every 8 elements, or two of 4; then a byte of signs unless points have signs.

    `is_even` says that the number of negative signs is even. `fill` writes points and signs.
    """

    grid: str
    fill: Callable[[Bytes, CodeNumbers, CodeNumbers], Bytes]
    is_even: bool = False
    has_signs: bool = True
    unit: int = 8

    @property
    def points(self) -> int:
        """Points of a unit."""
        return self.unit // int(lookup_table(self.grid).shape[1])

    @property
    def codes(self) -> int:
        """Numbers of a unit."""
        return self.points + self.has_signs

    def nearest(self, wanted: Floats, weights: Floats) -> CodeNumbers:
        """Return points, and signs."""
        if not self.has_signs:
            return self._nearest_points(wanted, weights)
        negative = wanted < 0
        if self.is_even:
            odd = np.flatnonzero(negative.sum(axis=0) % 2)
            least = np.argmin(weights[:, None] * wanted[:, odd] ** 2, axis=0)
            negative[least, odd] ^= True
        points = self._nearest_points(np.where(negative, -wanted, wanted), weights)
        signs = np.packbits(negative, axis=0, bitorder="little").astype(points.dtype)
        return np.concatenate((points, signs))

    def _nearest_points(self, wanted: Floats, weights: Floats) -> CodeNumbers:
        grid = lookup_table(self.grid)
        size = grid.shape[1]
        found = np.empty((self.points, wanted.shape[1]), np.int64)
        for number in range(self.points):
            own = slice(number * size, (number + 1) * size)
            weighted = grid * weights[own]
            scores = (wanted[own].T * 2) @ weighted.T
            scores -= (weighted * grid).sum(axis=1)
            found[number] = scores.argmax(axis=1)
        return found

    def levels(self, codes: CodeNumbers) -> Floats:
        """Return the levels of points, with their signs."""
        found = lookup_table(self.grid)[codes[: self.points]]
        values: Floats = found.transpose(0, 2, 1).reshape(self.unit, -1).copy()
        if self.has_signs:
            negative = (codes[-1] >> np.arange(self.unit)[:, None]) & 1
            values[negative != 0] *= -1
        return values

    def put(self, codes: CodeNumbers, blocks: Bytes) -> Bytes:
        """Return blocks with these points and signs."""
        units = codes.reshape(len(codes), -1, self.codes)
        points = units[..., : self.points].reshape(len(codes), -1)
        return self.fill(blocks, points, units[..., -1])


def _words(words: Bytes, dtype: str, kept: int, bits: CodeNumbers) -> Bytes:
    """Return words with other bits but those in the mask `kept`."""
    own = np.ascontiguousarray(words).view(dtype)
    made = (own & own.dtype.type(kept)) | bits.astype(own.dtype)
    found: Bytes = made.view(np.uint8)
    return found


def _fours_of_sevens(signs: CodeNumbers) -> CodeNumbers:
    """Return words of the seven lower signs of four units."""
    parts = (signs.reshape(len(signs), -1, 4) & 127) << np.arange(0, 28, 7)
    found: CodeNumbers = np.bitwise_or.reduce(parts, axis=2)
    return found


def _fill_iq2_xxs(blocks: Bytes, points: CodeNumbers, signs: CodeNumbers) -> Bytes:
    made: Bytes = blocks.copy()
    groups = blocks[:, 2:].copy().reshape(len(blocks), 8, 8)
    words = np.ascontiguousarray(groups[..., 4:]).view("<u4")[..., 0]
    words = (words & np.uint32(0xF0000000)) | _fours_of_sevens(signs).astype(np.uint32)
    groups[..., :4] = points.reshape(len(blocks), 8, 4)
    groups[..., 4:] = np.ascontiguousarray(words[..., None]).view(np.uint8)
    made[:, 2:] = groups.reshape(len(blocks), -1)
    return made


def _fill_iq2_xs(blocks: Bytes, points: CodeNumbers, signs: CodeNumbers) -> Bytes:
    made: Bytes = blocks.copy()
    made[:, 2:66] = _words(blocks[:, 2:66], "<u2", 0, points | ((signs & 127) << 9))
    return made


def _fill_iq2_s(blocks: Bytes, points: CodeNumbers, signs: CodeNumbers) -> Bytes:
    made: Bytes = blocks.copy()
    made[:, 2:34], made[:, 34:66] = points & 255, signs
    made[:, 66:74] = _joined_bits((points >> 8).astype(np.uint8), 2, 1)
    return made


def _fill_iq3_xxs(blocks: Bytes, points: CodeNumbers, signs: CodeNumbers) -> Bytes:
    made: Bytes = blocks.copy()
    made[:, 2:66] = points
    made[:, 66:98] = _words(blocks[:, 66:98], "<u4", 0xF0000000, _fours_of_sevens(signs))
    return made


def _fill_iq3_s(blocks: Bytes, points: CodeNumbers, signs: CodeNumbers) -> Bytes:
    made: Bytes = blocks.copy()
    made[:, 2:66], made[:, 74:106] = points & 255, signs
    made[:, 66:74] = _joined_bits((points >> 8).astype(np.uint8), 1, 1)
    return made


def _fill_iq1_s(blocks: Bytes, points: CodeNumbers, _signs: CodeNumbers) -> Bytes:
    made: Bytes = blocks.copy()
    made[:, 2:34] = points & 255
    upper = (points >> 8).reshape(len(blocks), -1, 4) << np.arange(0, 12, 3)
    made[:, 34:50] = _words(blocks[:, 34:50], "<u2", 0xF000, np.bitwise_or.reduce(upper, axis=2))
    return made


def _fill_iq1_m(blocks: Bytes, points: CodeNumbers, _signs: CodeNumbers) -> Bytes:
    made: Bytes = blocks.copy()
    made[:, :32] = points & 255
    upper = _joined_bits((points >> 8).astype(np.uint8), 4, 1)
    made[:, 32:48] = (blocks[:, 32:48] & 0x88) | upper
    return made


_TYPES: Final[dict[str, LevelCodes]] = {
    "Q4_0": _ElementCodes((_BitField(2, 18, 4, 16),), -8),
    "Q4_1": _ElementCodes((_BitField(4, 20, 4, 16),)),
    "Q5_0": _ElementCodes((_BitField(6, 22, 4, 16), _BitField(2, 6, 1, 1)), -16),
    "Q5_1": _ElementCodes((_BitField(8, 24, 4, 16), _BitField(4, 8, 1, 1))),
    "IQ4_NL": _ElementCodes((_BitField(2, 18, 4, 16),), table="iq4_levels"),
    "IQ4_XS": _ElementCodes((_BitField(8, 136, 4, 16),), table="iq4_levels"),
    "Q2_K": _ElementCodes((_BitField(16, 80, 2, 32),)),
    "Q3_K": _ElementCodes((_BitField(32, 96, 2, 32), _BitField(0, 32, 1, 32)), -4),
    "Q4_K": _ElementCodes((_BitField(16, 144, 4, 32),)),
    "Q5_K": _ElementCodes((_BitField(48, 176, 4, 32), _BitField(16, 48, 1, 32))),
    "Q6_K": _ElementCodes((_BitField(0, 128, 4, 64), _BitField(128, 192, 2, 32)), -32),
    "IQ2_XXS": _GridCodes("iq2_xxs", _fill_iq2_xxs, is_even=True),
    "IQ2_XS": _GridCodes("iq2_xs", _fill_iq2_xs, is_even=True),
    "IQ2_S": _GridCodes("iq2_s", _fill_iq2_s),
    "IQ3_XXS": _GridCodes("iq3_xxs", _fill_iq3_xxs, is_even=True),
    "IQ3_S": _GridCodes("iq3_s", _fill_iq3_s),
    "IQ1_S": _GridCodes("iq1", _fill_iq1_s, has_signs=False),
    "IQ1_M": _GridCodes("iq1", _fill_iq1_m, has_signs=False),
}


def level_codes(type: TensorType) -> LevelCodes | None:
    """Return how `type` stores levels, None for the other types."""
    return _TYPES.get(type.name)
