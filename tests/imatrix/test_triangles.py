"""Symmetric matrices, or blocks on their diagonals, come back from their folded triangles."""

from __future__ import annotations

import numpy as np
import pytest

from ggufkit.imatrix.hessian_file import (
    FoldedTriangles,
    blocks_of,
    diagonal,
    folded_shape,
    unfolded,
    width_of,
)


@pytest.mark.parametrize(
    ("width", "columns"), [(w, w) for w in (1, 2, 3, 8, 33)] + [(576, 256), (512, 256), (1536, 512)]
)
def test_a_folded_matrix_comes_back_and_takes_half_the_bytes(width, columns):
    matrices = np.zeros((3, width, columns), np.float32)
    for matrix in matrices:
        for block in blocks_of(matrix):
            block[:] = np.random.default_rng(width).standard_normal(block.shape, np.float32)
            np.add(block, block.T.copy(), out=block)
    source = FoldedTriangles(matrices)
    shape = folded_shape(width, columns)
    assert width_of(shape) == width
    assert np.prod(shape) <= (width + 1) * (columns + 1) / 2
    whole = source.read(0, 3 * shape[0])
    pieces = [source.read(start, start + 1) for start in range(3 * shape[0])]
    assert np.array_equal(np.concatenate(pieces), whole)
    for matrix, folded in zip(matrices, whole.view(np.float32).reshape(3, *shape), strict=True):
        for block, triangle in zip(blocks_of(matrix), blocks_of(unfolded(folded)), strict=True):
            assert np.array_equal(triangle, np.triu(block))
        squares = np.concatenate([np.diag(block) for block in blocks_of(matrix)])
        assert np.array_equal(diagonal(folded), squares)


@pytest.mark.parametrize("shape", [(3, 3), (2, 0), (0, 5), (200, 201), (100, 301)])
def test_shapes_that_no_matrix_has_have_no_width(shape):
    assert width_of(shape) == 0
