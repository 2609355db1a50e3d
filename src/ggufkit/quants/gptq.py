"""Quantize rows while errors are fed back: each column makes up for the errors before it (LDLQ).

The error of a row is E H E', where E are its errors and H = U U' are the second moments of its
inputs; U is an upper triangle. So a unit of columns j adds the square of E[j] U[j, j] plus the sum
of E[i] U[i, j] over the units i before it, and W[j] plus that sum times the inverse of U[j, j] is
the best value for it. ggufkit's own encoders find the scales of a block for these values. Then
levels are chosen unit by unit within the block: a unit is one element, the 8 elements of a point in
a grid, or a whole block of a type whose levels cannot be chosen alone.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

import ggufkit._native as _native
from ggufkit.format.types import TensorType
from ggufkit.quants import codec
from ggufkit.quants.block_parts import block_parts
from ggufkit.quants.cholesky import cholesky
from ggufkit.quants.parallel import Floats
from ggufkit.quants.search import Search, is_searched
from ggufkit.system.cpu import instruction_set
from ggufkit.system.mapped_file import Bytes

# Elements of blocks that are encoded together: they stay in caches. They are 480 rows of a K-quant,
# no power of two: otherwise numbers of a row would evict each other when columns become rows.
CACHED: Final = 480 << 8
# The share of its own mean square by which each column is damped. Products of different inputs
# then count a fifth less: they differ more from text to text than squares do.
DAMPING: Final = 0.25
LEAST_DAMPING: Final = 0.006  # of the mean of all columns, for columns that are nearly zero


def factor_of(moments: Floats, damping: float = DAMPING, threads: int = 1) -> Floats | None:
    """Return U of damped `moments`; None if they are not positive.

    This and `moment_errors` take the upper triangle of moments.
    """
    damped = moments.copy()
    diagonal = np.einsum("ii->i", damped)
    diagonal += damping * diagonal + LEAST_DAMPING * diagonal.mean()
    try:
        lower = cholesky(damped[::-1, ::-1], threads)
    except np.linalg.LinAlgError:
        return None
    upper = np.ascontiguousarray(lower[::-1, ::-1])
    is_usable = np.isfinite(upper).all() and np.einsum("ii->i", upper).min() > 0
    return upper if is_usable else None


def moment_errors(errors: Floats, moments: Floats) -> Floats:
    """Return E H E' of each row of errors."""
    outputs = 2 * (errors @ moments) - errors * np.einsum("ii->i", moments)
    sums: Floats = np.einsum("ij,ij->i", outputs, errors)
    return sums


@dataclass(frozen=True)
class Gptq:
    """How errors of the columns are fed back: for one factor, and units of a size.

    `shares[i, j]` is the share of the error in column i that column j makes up for; `weights` is
    the importance of each column once all later ones have made up for it.
    """

    shares: Floats
    weights: Floats

    @classmethod
    def of(cls, factor: Floats, type: TensorType) -> Gptq:
        """Return the feedback for a factor, in the units of a type."""
        unit, width = unit_of(type), len(factor)
        own = np.arange(width).reshape(-1, unit)
        blocks = factor[own[:, :, None], own[:, None, :]].astype(np.float64)
        inverse = np.linalg.inv(blocks).astype(np.float32)
        if unit == 1:
            shares = factor * inverse.reshape(-1)
        else:
            shares = np.matmul(factor.reshape(width, -1, 1, unit), inverse).reshape(width, width)
        return cls(shares, np.square(blocks).sum(axis=2).reshape(-1).astype(np.float32))

    def encode(self, rows: Floats, type: TensorType, *, search: Search | None = None) -> Bytes:
        """Pack float32 `rows` as `type`."""
        step = max(CACHED // type.block_size, 1)
        starts = range(0, len(rows), step)
        parts = [self._encoded(rows[start : start + step], type, search) for start in starts]
        return np.concatenate(parts)

    def _encoded(self, rows: Floats, type: TensorType, search: Search | None) -> Bytes:
        size, width = type.block_size, rows.shape[1]
        exact = np.ascontiguousarray(rows.T)
        errors = np.zeros_like(exact)
        blocks = np.empty((len(rows), width // size, type.block_bytes), np.uint8)
        for number, start in enumerate(range(0, width, size)):
            own = slice(start, start + size)
            targets = exact[own] + self.shares[:start, own].T @ errors[:start]
            within = Gptq(np.ascontiguousarray(self.shares[own, own].T), self.weights[own])
            step = _BlockStep(exact[own], targets, type, within, search)
            blocks[:, number], errors[own] = step.encoded()
        return blocks.reshape(len(rows), -1)


def encode_blocks(
    gptqs: Sequence[Gptq], rows: Floats, type: TensorType, *, search: Search | None = None
) -> Bytes:
    """Pack rows whose columns are in independent blocks, each with its own feedback."""
    pairs = zip(gptqs, cut_columns(rows, [len(gptq.weights) for gptq in gptqs]), strict=True)
    return np.concatenate([gptq.encode(part, type, search=search) for gptq, part in pairs], axis=1)


def cut_columns(rows: Floats, widths: Sequence[int]) -> list[Floats]:
    """Return the columns of rows in parts of these widths."""
    return np.split(rows, np.cumsum(widths)[:-1], axis=1)


def unit_of(type: TensorType) -> int:
    """Return how many elements of a type are chosen together."""
    codes = level_codes(type)
    return codes.unit if codes else type.block_size


class BlockColumns(NamedTuple):
    """Columns of a block: exact values, values after feedback, errors; and the cost of each row."""

    exact: Floats
    targets: Floats
    errors: Floats
    costs: Floats


class _ChosenLevels(NamedTuple):
    """Blocks with scales, and for these the codes and the columns of each row."""

    blocks: Bytes
    codes: CodeNumbers
    columns: BlockColumns


@dataclass(frozen=True)
class _BlockStep:
    """One block of each row: its weights, and what they should be after the blocks before it.

    Rows are columns here. The shares of `feedback` are transposed: a lower triangle.
    """

    exact: Floats
    targets: Floats
    type: TensorType
    feedback: Gptq
    search: Search | None

    def encoded(self) -> tuple[Bytes, Floats]:
        """Return the blocks, and their errors."""
        codes, blocks = level_codes(self.type), self._with_scales(self.targets)
        if codes is None:
            return blocks, self.exact - codec.decode_rows(blocks, self.type).T
        first = self._rounded(blocks, codes)
        again = self._rounded(self._with_scales(first.columns.targets), codes)
        is_better = again.columns.costs < first.columns.costs
        numbers = np.where(is_better, again.codes, first.codes)
        scales = np.where(is_better[:, None], again.blocks, first.blocks)
        errors = np.where(is_better, again.columns.errors, first.columns.errors)
        return codes.bits.put(numbers, scales), errors

    def _with_scales(self, values: Floats) -> Bytes:
        """Return blocks for these values, without feedback within the block."""
        rows, weights = np.ascontiguousarray(values.T), self.feedback.weights
        return codec.encode_rows(rows, self.type, imatrix=weights, search=self.search)

    def _rounded(self, blocks: Bytes, codes: LevelCodes) -> _ChosenLevels:
        """Choose levels for the scales of these blocks, one unit after the other."""
        parts = block_parts(blocks, self.type)
        count = max(part.shape[1] for part in (parts.scales, parts.offsets) if part is not None)
        scales = _by_group(parts.scales, count)
        shifts = codes.first * scales
        if parts.offsets is not None:
            shifts += _by_group(parts.offsets, count)
        costs = np.zeros(len(blocks), np.float32)
        columns = BlockColumns(self.exact, self.targets.copy(), np.empty_like(self.exact), costs)
        numbers = codes.choose(columns, scales, shifts, self.feedback)
        return _ChosenLevels(blocks, numbers, columns)


def _by_group(values: Floats, count: int) -> Floats:
    groups: Floats = np.repeat(values, count // values.shape[1], axis=1).T.copy()
    return groups


# How types store levels: the inverse of `block_parts`. Where a block holds each bit of a code,
# and which levels the codes have, follows from `block_parts` of blocks in which one bit is set.
CodeNumbers = npt.NDArray[np.integer[Any]]

UNIT: Final = 8  # elements of a point of IQ1 and IQ2, or two points of IQ3


@functools.cache
def level_codes(type: TensorType) -> LevelCodes | None:
    """Return how `type` stores levels, None for the types without a search."""
    return LevelCodes.of(type) if is_searched(type) else None


@dataclass(frozen=True)
class LevelCodes:
    """How a type stores levels: `codes` numbers for every `unit` elements.

    The numbers are a code for each element, or points of a grid and a byte of signs. `table` holds
    the levels of each code, `bits` where a block holds the bits of codes.
    """

    table: Floats  # (codes, levels of one)
    points: int  # numbers of a unit that are rows of `table`
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
        levels = parts.levels[:, : type.block_size // points].astype(np.float32)
        signs = bits.most(bits.rows // units - 1) if len(codes) > 1 else 0
        return cls(np.ascontiguousarray(levels), points // units, signs, bits)

    @functools.cached_property
    def is_uniform(self) -> bool:
        """Whether the levels of an element are whole numbers without a gap: codes, from `first`."""
        return self.unit == 1 and bool(np.ptp(self.table) == len(self.table) - 1)

    @functools.cached_property
    def first(self) -> float:
        """The level of code 0 of a uniform type, else 0."""
        return float(self.table[0, 0]) if self.is_uniform else 0.0

    @functools.cached_property
    def _ordered(self) -> tuple[Floats, Floats, Bytes]:
        """The levels of an element in ascending order, less `first`; the bounds; and the codes.

        Bounds are the values half way between levels; without them, levels are whole numbers.
        """
        levels, codes = np.unique(self.table[:, 0] - np.float32(self.first), return_index=True)
        bounds = np.empty(0) if self.is_uniform else (levels[1:] + levels[:-1]) / 2
        return levels, bounds.astype(np.float32), codes.astype(np.uint8)

    @functools.cached_property
    def unit(self) -> int:
        """Elements whose levels are chosen together."""
        return self.points * int(self.table.shape[1])

    def choose(
        self, columns: BlockColumns, scales: Floats, shifts: Floats, feedback: Gptq
    ) -> CodeNumbers:
        """Choose levels for the columns of a block, and return their codes (codes, rows).

        A level counts from `first`, in units of `scales` above `shifts`: (groups, rows).
        `columns` are updated. The shares of `feedback` are transposed.
        """
        shares, weights = feedback.shares, feedback.weights
        exact, targets, errors, costs = columns
        if self.unit == 1:
            levels, bounds, codes = self._ordered
            places = np.empty(exact.shape, np.uint8)
            _native.choose_levels(
                exact.reshape(-1),
                targets.reshape(-1),
                errors.reshape(-1),
                costs,
                places.reshape(-1),
                scales.reshape(-1),
                shifts.reshape(-1),
                shares.reshape(-1),
                weights,
                levels,
                bounds,
                instruction_set(),
            )
            return places if self.is_uniform else codes[places]
        chosen, width = [], len(exact) // len(scales)
        inverse = np.divide(1, scales, out=np.zeros_like(scales), where=scales != 0)
        for first in range(0, len(exact), self.unit):
            own, group = slice(first, first + self.unit), first // width
            targets[own] += shares[own, :first] @ errors[:first]
            values = (targets[own] - shifts[group]) * inverse[group]
            chosen.append(self._nearest_codes(values, weights[own]))
            levels = self.levels(chosen[-1])
            errors[own] = exact[own] - (levels * scales[group] + shifts[group])
        costs += weights @ np.square(targets - exact + errors)
        return np.concatenate(chosen)

    def _nearest_codes(self, values: Floats, weights: Floats) -> CodeNumbers:
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
        size = self.table.shape[1]
        points = np.empty((self.points, values.shape[1]), np.int64)
        for number in range(self.points):
            own = slice(number * size, (number + 1) * size)
            weighted = self.table * weights[own]
            scores = (values[own].T * 2) @ weighted.T
            scores -= (weighted * self.table).sum(axis=1)
            points[number] = scores.argmax(axis=1)
        return points

    def levels(self, codes: CodeNumbers) -> Floats:
        """Return the levels (unit, n) of codes."""
        levels: Floats = self.table[codes[: self.points]]
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
        return sum(field.width * codes.count(code) for field, (_, codes) in self.places.items())

    def put(self, codes: CodeNumbers, blocks: Bytes) -> Bytes:
        """Return blocks with these codes (codes of a block, blocks)."""
        columns: Bytes = blocks.T & self.others[:, None]
        for field, (places, numbers) in self.places.items():
            part = (codes[numbers] >> field.shift) & ((1 << field.width) - 1)
            columns[places] |= (part << field.position).astype(np.uint8)
        return np.ascontiguousarray(columns.T)
