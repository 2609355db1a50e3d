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
            for first, part in ((row, out[: width - row]), (width - 1 - row, out[width - row :])):
                part[:] = self.squares[matrix, first, first:]
        return found.view(np.uint8)


def unfolded(rectangle: Floats) -> Floats:
    """Return the matrix of a rectangle."""
    width = rectangle.shape[-1] - 1
    square = np.zeros((width, width), rectangle.dtype)
    for row, numbers in enumerate(rectangle):
        square[row, row:] = numbers[: width - row]
        square[width - 1 - row, width - 1 - row :] = numbers[width - row :]
    square += np.triu(square, 1).T
    return square
