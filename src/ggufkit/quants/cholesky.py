"""Cholesky factors of large matrices, by several threads that each use one of BLAS's.

BLAS rounds differently with another number of threads. Here the tiles are always the same, and so
is the result.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np

from ggufkit.quants.blas import blas_limited
from ggufkit.quants.parallel import Doubles
from ggufkit.system.threads import in_turn, pool_of

WIDE: Final = 4096  # from this width on, several threads are worth it
CORNER: Final = 256  # columns that are found together
TILE: Final = 1024  # rows that a thread takes


def cholesky(matrix: Doubles, threads: int) -> Doubles:
    """Return the lower triangle L with L L' = `matrix`; LinAlgError if it is not positive."""
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
