"""Choose levels for given scales, and write them into blocks: the inverse of `block_parts`.

Where a block holds each bit of a code, and which levels the codes have, follows from `block_parts`
of blocks in which one bit is set. A type is here if its elements have levels of their own, or share
a point of a grid with neighbours; these are the types that have a search.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ggufkit.format.types import TensorType
from ggufkit.quants.block_parts import block_parts
from ggufkit.quants.parallel import Floats
from ggufkit.quants.search import is_searched
from ggufkit.system.mapped_file import Bytes

CodeNumbers = npt.NDArray[np.integer[Any]]

UNIT: Final = 8  # elements of a point of IQ1 and IQ2, or two points of IQ3


@functools.cache
def level_codes(type: TensorType) -> LevelCodes | None:
    """Return how `type` stores levels, None for the types without a search."""
    return LevelCodes.of(type) if is_searched(type) else None


@dataclass(frozen=True)
class LevelCodes:
    """How a type stores levels: `codes` numbers for every `unit` elements.

    The numbers are a code for each element, or points of a grid and a byte of signs. `known` holds
    the levels of each code, `bits` where a block holds the bits of codes.
    """

    known: Floats  # (codes, levels of one)
    points: int  # numbers of a unit that are codes of `known`
    signs: int  # stored signs of a unit; with 7 of 8, the number of negative ones is even
    bits: _CodeBits

    @classmethod
    def of(cls, type: TensorType) -> LevelCodes:
        """Return the codes of a type, as `block_parts` shows them."""
        blocks = np.zeros((1, type.block_bytes), np.uint8)
        codes = block_parts(blocks, type).codes
        points = codes[0].shape[1]
        on_grid = type.block_size // points > 1 or len(codes) > 1
        units = type.block_size // UNIT if on_grid else type.block_size
        bits = _CodeBits.of(type, units)
        count = 1 << bits.most(0)
        numbers = np.zeros((bits.rows, count), np.int64)
        numbers[0] = np.arange(count)
        parts = block_parts(bits.put(numbers, np.repeat(blocks, count, 0)), type)
        known = parts.levels[:, : type.block_size // points].astype(np.float32)
        signs = bits.most(bits.rows // units - 1) if len(codes) > 1 else 0
        return cls(np.ascontiguousarray(known), points // units, signs, bits)

    @property
    def unit(self) -> int:
        """Elements whose levels are chosen together."""
        return self.points * int(self.known.shape[1])

    @property
    def codes(self) -> int:
        """Numbers that a unit stores."""
        return self.points + bool(self.signs)

    def nearest(self, values: Floats, weights: Floats) -> CodeNumbers:
        """Return the codes (codes, n) whose levels are nearest to `values` (unit, n)."""
        if self.unit == 1:
            levels = self.known[:, 0]
            if levels[-1] - levels[0] == len(levels) - 1:
                codes: CodeNumbers = np.clip(
                    np.rint(values - levels[0]), 0, len(levels) - 1
                ).astype(np.int32)
                return codes
            return np.searchsorted((levels[1:] + levels[:-1]) / 2, values)
        if not self.signs:
            return self._nearest_points(values, weights)
        negative = values < 0
        if self.signs < self.unit:
            odd = np.flatnonzero(negative.sum(axis=0) % 2)
            least = np.argmin(weights[:, None] * values[:, odd] ** 2, axis=0)
            negative[least, odd] ^= True
        points = self._nearest_points(np.where(negative, -values, values), weights)
        signs = np.packbits(negative, axis=0, bitorder="little").astype(points.dtype)
        return np.concatenate((points, signs))

    def _nearest_points(self, values: Floats, weights: Floats) -> CodeNumbers:
        size = self.known.shape[1]
        points = np.empty((self.points, values.shape[1]), np.int64)
        for number in range(self.points):
            own = slice(number * size, (number + 1) * size)
            weighted = self.known * weights[own]
            scores = (values[own].T * 2) @ weighted.T
            scores -= (weighted * self.known).sum(axis=1)
            points[number] = scores.argmax(axis=1)
        return points

    def levels(self, codes: CodeNumbers) -> Floats:
        """Return the levels (unit, n) of codes."""
        levels: Floats = self.known[codes[: self.points]]
        levels = levels.transpose(0, 2, 1).reshape(self.unit, -1).copy()
        if self.signs:
            negative = (codes[-1] >> np.arange(self.unit)[:, None]) & 1
            levels[negative != 0] *= -1
        return levels


class _BitField(NamedTuple):
    """Bits of codes in one byte: so many from bit `shift` of a code, from `position` on."""

    position: int
    shift: int
    width: int


@dataclass(frozen=True)
class _CodeBits:
    """Where blocks hold codes: for each kind of field, its bytes in a block, and their codes."""

    places: dict[_BitField, tuple[list[int], list[int]]]
    others: Bytes  # a mask of the bits in a block that belong to no code
    rows: int  # codes of a block

    @classmethod
    def of(cls, type: TensorType, units: int) -> _CodeBits:
        """Find the bits by blocks in which only one bit is set."""
        single = np.eye(8 * type.block_bytes, dtype=np.uint8)
        with np.errstate(all="ignore"):  # a scale of one bit may be infinite
            parts = block_parts(np.packbits(single, 1, "little"), type)
        blocks = len(parts.levels)
        by_unit = [np.asarray(codes).reshape(blocks, units, -1) for codes in parts.codes]
        stored = np.concatenate(by_unit, axis=2).reshape(blocks, -1)
        bits, codes = np.nonzero(stored)
        numbers = stored[bits, codes].astype(np.int64)
        # A sign also sets the one that makes their number even: the lower one is stored.
        shifts = np.log2(numbers & -numbers).astype(np.int64)
        is_next = (np.diff(bits) == 1) & (np.diff(codes) == 0) & (np.diff(shifts) == 1)
        starts = np.flatnonzero(np.concatenate(([True], ~is_next | (bits[1:] % 8 == 0))))
        places: dict[_BitField, tuple[list[int], list[int]]] = {}
        for start, count in zip(starts, np.diff(starts, append=len(bits)), strict=True):
            field = _BitField(int(bits[start]) % 8, int(shifts[start]), int(count))
            places.setdefault(field, ([], []))[0].append(int(bits[start]) // 8)
            places[field][1].append(int(codes[start]))
        used = np.zeros(8 * type.block_bytes, np.uint8)
        used[bits] = 1
        return cls(places, ~np.packbits(used, bitorder="little"), stored.shape[1])

    def most(self, code: int) -> int:
        """Return the number of bits of a code."""
        return sum(field.width * codes.count(code) for field, (_, codes) in self.places.items())

    def put(self, codes: CodeNumbers, blocks: Bytes) -> Bytes:
        """Return blocks with these codes (codes of a block, blocks)."""
        columns: Bytes = blocks.T & self.others[:, None]
        for field, (places, numbers) in self.places.items():
            part = (codes[numbers] >> field.shift) & ((1 << field.width) - 1)
            columns[places] |= (part << field.position).astype(np.uint8)
        return np.ascontiguousarray(columns.T)
