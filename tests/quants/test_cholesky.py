"""Factors made of tiles by several threads are those of NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from ggufkit.quants import cholesky as module
from ggufkit.quants.cholesky import cholesky


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    for name, value in (("CORNER", 16), ("TILE", 24)):
        monkeypatch.setattr(module, name, value)


@pytest.mark.parametrize("width", [8, 16, 17, 100])
def test_factor_is_that_of_numpy_and_the_same_for_any_number_of_threads(width):
    rows = np.random.default_rng(width).standard_normal((2 * width, width))
    matrix = rows.T @ rows
    factor = cholesky(matrix[::-1, ::-1], 1)
    assert np.allclose(factor, np.linalg.cholesky(matrix[::-1, ::-1]), rtol=1e-9, atol=1e-9)
    assert np.array_equal(cholesky(matrix[::-1, ::-1], 3), factor)


def test_a_matrix_that_is_not_positive_has_no_factor():
    matrix = np.eye(40)
    matrix[30, 30] = -1
    with pytest.raises(np.linalg.LinAlgError):
        cholesky(matrix, 2)
