"""Quantize rows while errors are fed back: each column makes up for the errors before it (LDLQ).

The error of a row is E H E', where E are its errors and H = U U' are the second moments of its
inputs; U is an upper triangle. So a unit of columns j adds the square of E[j] U[j, j] plus the sum
of E[i] U[i, j] over the units i before it, and W[j] plus that sum times the inverse of U[j, j] is
the best value for it. ggufkit's own encoders find the scales of a block for these values. Then
levels are chosen unit by unit within the block: a unit is one element, the 8 elements of a point in
a grid, or a whole block of a type whose levels cannot be chosen alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ggufkit.format.types import TensorType
from ggufkit.quants import codec
from ggufkit.quants.blas import blas_limited
from ggufkit.quants.block_parts import block_parts
from ggufkit.quants.level_codes import LevelCodes, level_codes
from ggufkit.quants.parallel import Doubles, Floats
from ggufkit.quants.search import Search
from ggufkit.system.mapped_file import Bytes
from ggufkit.system.threads import in_turn, pool_of

BATCH: Final = 32  # columns
TURNS: Final = 2  # scales are found again for the values that feedback asked for


def factor_of(moments: Floats, damping: float, threads: int = 1) -> Floats | None:
    """Return U of `moments` plus `damping` times their mean diagonal; None if there is no U."""
    damped = moments.astype(np.float64)
    diagonal = np.einsum("ii->i", damped)
    diagonal += damping * diagonal.mean()
    try:
        lower = cholesky(damped[::-1, ::-1], threads)
    except np.linalg.LinAlgError:
        return None
    upper = np.ascontiguousarray(lower[::-1, ::-1], np.float32)
    is_usable = np.isfinite(upper).all() and np.einsum("ii->i", upper).min() > 0
    return upper if is_usable else None


def moment_errors(errors: Floats, moments: Floats) -> Floats:
    """Return E H E' of each row of errors."""
    found: Floats = np.einsum("ij,ij->i", errors @ moments, errors)
    return found


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
        """Return that of a factor, in the units of a type."""
        codes = level_codes(type)
        unit = codes.unit if codes else type.block_size
        width = len(factor)
        own = np.arange(width).reshape(-1, unit)
        blocks = factor[own[:, :, None], own[:, None, :]].astype(np.float64)
        inverse = np.linalg.inv(blocks).astype(np.float32)
        shares = np.matmul(factor.reshape(width, -1, 1, unit), inverse).reshape(width, width)
        return cls(shares, np.square(blocks).sum(axis=2).reshape(-1).astype(np.float32))

    def encode(self, rows: Floats, type: TensorType, *, search: Search | None = None) -> Bytes:
        """Pack float32 `rows` as `type`."""
        size, width = type.block_size, rows.shape[1]
        errors = np.zeros_like(rows)
        blocks = np.empty((width // size, len(rows), type.block_bytes), np.uint8)
        for number, start in enumerate(range(0, width, size)):
            own = slice(start, start + size)
            step = _BlockStep(
                np.ascontiguousarray(rows[:, own]),
                rows[:, own] + errors[:, :start] @ self.shares[:start, own],
                type,
                Gptq(np.ascontiguousarray(self.shares[own, own]), self.weights[own]),
                search,
            )
            best = step.encoded()
            blocks[number], errors[:, own] = best.blocks, best.errors
        return np.ascontiguousarray(blocks.transpose(1, 0, 2)).reshape(len(rows), -1)


class _EncodedBlocks(NamedTuple):
    """Blocks, their errors, the values that feedback asked for, and the cost of each row."""

    blocks: Bytes
    errors: Floats
    asked: Floats
    costs: Floats

    def where(self, chosen: npt.NDArray[np.bool_], other: _EncodedBlocks) -> _EncodedBlocks:
        """Return the chosen rows of this one, and the rest of another one."""
        column = chosen[:, None]
        return _EncodedBlocks(
            np.where(column, self.blocks, other.blocks),
            np.where(column, self.errors, other.errors),
            np.where(column, self.asked, other.asked),
            np.where(chosen, self.costs, other.costs),
        )


@dataclass(frozen=True)
class _BlockStep:
    """One block of each row: its weights, and what they should be after the blocks before it."""

    rows: Floats
    wanted: Floats
    type: TensorType
    feedback: Gptq
    search: Search | None

    def encoded(self) -> _EncodedBlocks:
        """Return the best blocks found."""
        codes = level_codes(self.type)
        if codes is None:
            blocks = self._with_scales(self.wanted)
            errors = self.rows - codec.decode_rows(blocks, self.type)
            return _EncodedBlocks(blocks, errors, self.wanted, np.zeros(len(blocks), np.float32))
        best = self._rounded(self._with_scales(self.wanted), codes)
        for _ in range(1, TURNS):
            again = self._rounded(self._with_scales(best.asked), codes)
            best = again.where(again.costs < best.costs, best)
        return best

    def _with_scales(self, values: Floats) -> Bytes:
        """Return blocks for these values, without feedback within the block."""
        weights = self.feedback.weights
        return codec.encode_rows(values, self.type, imatrix=weights, search=self.search)

    def _rounded(self, blocks: Bytes, codes: LevelCodes) -> _EncodedBlocks:
        """Return blocks of the same scales, with levels chosen one unit after the other."""
        parts = block_parts(blocks, self.type)
        size, unit = self.rows.shape[1], codes.unit
        scales = _by_column(parts.scales, size)
        inverse = np.divide(1, scales, out=np.zeros_like(scales), where=scales != 0)
        shifts = 0 * scales if parts.offsets is None else _by_column(parts.offsets, size)
        rows, asked = self.rows.T.copy(), self.wanted.T.copy()
        errors = np.zeros_like(rows)
        shares, weights = self.feedback.shares.T.copy(), self.feedback.weights
        found = np.empty((size // unit, codes.codes, len(blocks)), np.int32)
        for number, start in enumerate(range(0, size, unit)):
            own = slice(start, start + unit)
            # Products of many columns are BLAS's, those of a few are faster without its threads.
            before = start - start % BATCH
            if start == before:
                batch = slice(start, start + BATCH)
                asked[batch] += shares[batch, :start] @ errors[:start]
            asked[own] += np.einsum("uk,kn->un", shares[own, before:start], errors[before:start])
            wanted = (asked[own] - shifts[own]) * inverse[own]
            found[number] = codes.nearest(wanted, weights[own])
            made = codes.levels(found[number]) * scales[own] + shifts[own]
            errors[own] = rows[own] - made
        costs = weights @ np.square(asked - (rows - errors))
        again = codes.bits.put(found.reshape(-1, len(blocks)), blocks)
        return _EncodedBlocks(again, errors.T, asked.T.copy(), costs)


def _by_column(groups: Floats, size: int) -> Floats:
    """Return numbers of groups as one for each column: (size, blocks)."""
    found: Floats = np.repeat(groups, size // groups.shape[1], axis=1).T.copy()
    return found


WIDE: Final = 4096  # from this width on, several threads are worth it
CORNER: Final = 256  # columns that are found together
TILE: Final = 1024  # rows that a thread takes


def cholesky(matrix: Doubles, threads: int) -> Doubles:
    """Return the lower triangle L with L L' = `matrix`; LinAlgError if it is not positive.

    BLAS rounds differently with another number of threads. So each of `threads` uses one of BLAS's,
    on tiles that are always the same.
    """
    with blas_limited(1):
        if len(matrix) >= WIDE:
            return _tiled(matrix, threads)
        return np.asarray(np.linalg.cholesky(matrix), np.float64)


def _tiled(matrix: Doubles, threads: int) -> Doubles:
    lower = np.zeros_like(matrix)
    with pool_of(threads) as pool:
        for start in range(0, len(matrix), CORNER):
            columns = slice(start, start + CORNER)
            corner = np.linalg.cholesky(_left(matrix, lower, columns, columns))
            lower[columns, columns] = corner
            inverse = np.linalg.inv(corner).T
            rows = [slice(at, at + TILE) for at in range(start + CORNER, len(matrix), TILE)]
            tasks = [partial(_solved, matrix, lower, each, columns, inverse) for each in rows]
            for each, found in zip(rows, in_turn(pool, tasks, len(tasks)), strict=True):
                lower[each, columns] = found
    return lower


def _solved(
    matrix: Doubles, lower: Doubles, rows: slice, columns: slice, inverse: Doubles
) -> Doubles:
    """Return a tile of the factor."""
    return np.asarray(_left(matrix, lower, rows, columns) @ inverse)


def _left(matrix: Doubles, lower: Doubles, rows: slice, columns: slice) -> Doubles:
    """Return what the columns before leave of a tile."""
    done = slice(0, columns.start)
    return np.asarray(matrix[rows, columns] - lower[rows, done] @ lower[columns, done].T)
