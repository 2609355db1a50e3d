"""Symmetric matrices come back from their folded triangles."""

from __future__ import annotations

import numpy as np
import pytest

from ggufkit.imatrix.hessian_file import FoldedTriangles, diagonal, folded_shape, unfolded


@pytest.mark.parametrize("width", [1, 2, 3, 8, 33])
def test_a_folded_matrix_comes_back_and_takes_half_the_bytes(width):
    matrices = np.random.default_rng(width).standard_normal((3, width, width)).astype(np.float32)
    squares = matrices + matrices.transpose(0, 2, 1)
    source = FoldedTriangles(squares)
    rows, columns = folded_shape(width)
    whole = source.read(0, 3 * rows)
    pieces = [source.read(start, start + 1) for start in range(3 * rows)]
    assert np.array_equal(np.concatenate(pieces), whole)
    folded = whole.view(np.float32).reshape(3, rows, columns)
    assert rows * columns <= (width + 1) ** 2 / 2
    for square, rectangle in zip(squares, folded, strict=True):
        assert np.array_equal(unfolded(rectangle), square)
        assert np.array_equal(diagonal(rectangle), np.diag(square))
