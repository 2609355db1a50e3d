"""Symmetric matrices in files: one triangle of each, folded into a rectangle.

Row i of the rectangle of a W x W matrix is row i of its upper triangle, and then row W - 1 - i: W +
1 numbers together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ggufkit.models.rows import Made
from ggufkit.quants.parallel import Floats
from ggufkit.system.mapped_file import Bytes


def folded_shape(width: int) -> tuple[int, int]:
    """Return the shape of the rectangle of a matrix."""
    return -(-width // 2), width + 1


@dataclass(frozen=True, eq=False)
class FoldedTriangles(Made):
    """Rows of the rectangles of float32 matrices: (matrices, width, width)."""

    squares: Floats

    def read(self, start: int, stop: int) -> Bytes:
        """Return rows `start` to `stop`."""
        width = self.squares.shape[-1]
        found = np.empty((stop - start, width + 1), np.float32)
        for place, out in enumerate(found, start):
            matrix, row = divmod(place, folded_shape(width)[0])
            last = width - 1 - row
            out[: width - row] = self.squares[matrix, row, row:]
            out[width - row :] = self.squares[matrix, last, last:]
        return found.view(np.uint8)


def unfolded(rectangle: Floats) -> Floats:
    """Return the matrix of a rectangle."""
    width = rectangle.shape[-1] - 1
    square = np.empty((width, width), rectangle.dtype)
    for row, numbers in enumerate(rectangle):
        last = width - 1 - row
        square[row, row:] = square[row:, row] = numbers[: width - row]
        square[last, last:] = square[last:, last] = numbers[width - row :]
    return square


def diagonal(rectangle: Floats) -> Floats:
    """Return the diagonal of the matrix of a rectangle."""
    rows, width = np.arange(len(rectangle)), rectangle.shape[-1] - 1
    found = np.empty(width, rectangle.dtype)
    found[width - 1 - rows] = rectangle[rows, width - rows]
    found[rows] = rectangle[:, 0]
    return found
