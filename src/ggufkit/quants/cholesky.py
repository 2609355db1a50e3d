"""Factor a positive matrix by the same tiles for any number of threads."""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np

from ggufkit.quants.blas import blas_limited
from ggufkit.quants.parallel import Floats
from ggufkit.system.threads import in_turn, pool_of

CORNER: Final = 64  # columns that are found together
TILE: Final = 1024  # rows that a thread takes


def cholesky(matrix: Floats, threads: int) -> Floats:
    """Return the lower triangle L with L L' = `matrix`; LinAlgError if it is not positive.

    BLAS rounds differently with another number of threads. So each of `threads` uses one of BLAS's,
    on tiles that are always the same. Only the lower triangle of `matrix` is read.
    """
    lower = np.zeros_like(matrix)
    with blas_limited(1), pool_of(threads) as pool:
        for start in range(0, len(matrix), CORNER):
            columns = slice(start, start + CORNER)
            corner = np.linalg.cholesky(_remainder(matrix, lower, columns, columns))
            lower[columns, columns] = corner
            inverse = np.linalg.inv(corner).T
            rows = [slice(row, row + TILE) for row in range(start + CORNER, len(matrix), TILE)]
            tasks = [partial(_solved, matrix, lower, span, columns, inverse) for span in rows]
            for part, solved in zip(rows, in_turn(pool, tasks, len(tasks)), strict=True):
                lower[part, columns] = solved
    return lower


def _solved(matrix: Floats, lower: Floats, rows: slice, columns: slice, inverse: Floats) -> Floats:
    return np.asarray(_remainder(matrix, lower, rows, columns) @ inverse)


def _remainder(matrix: Floats, lower: Floats, rows: slice, columns: slice) -> Floats:
    before = slice(0, columns.start)
    return np.asarray(matrix[rows, columns] - lower[rows, before] @ lower[columns, before].T)
