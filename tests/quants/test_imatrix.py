"""How `quantize` uses importance weights."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import oracle
from ggufkit import quants
from ggufkit.errors import ShapeError, ValueTypeError


def test_types_that_ignore_weights_in_ggml_ignore_them_here():
    x = oracle.array("normal", 4, 64)
    weighted = quants.quantize(x, "Q8_0", imatrix=np.ones(64))
    np.testing.assert_array_equal(weighted, quants.quantize(x, "Q8_0"))


@pytest.mark.parametrize("shape", [(), (63,), (1, 64), (4, 64), (64, 1)])
def test_refuses_weights_of_another_shape_and_names_those_that_fit(shape):
    with pytest.raises(ShapeError, match=r"\(64,\)"):
        quants.quantize(np.zeros((4, 64), np.float32), "Q8_0", imatrix=np.ones(shape))


def test_experts_have_separate_or_shared_weights():
    x = np.zeros((3, 4, 64), np.float32)
    for shape in ((64,), (3, 64)):
        assert quants.quantize(x, "Q8_0", imatrix=np.ones(shape)).shape == (3, 4, 68)
    for shape in ((4, 64), (1, 64), (3, 4, 64)):
        with pytest.raises(ShapeError, match=r"\(3, 64\)"):
            quants.quantize(x, "Q8_0", imatrix=np.ones(shape))


def test_weights_may_have_any_float_type():
    x = oracle.array("normal", 2, 256)
    weights = np.geomspace(0.01, 100, 256).astype(ml_dtypes.bfloat16)
    packed = quants.quantize(x, "Q4_K", imatrix=weights)
    floats = weights.astype(np.float32)
    np.testing.assert_array_equal(packed, quants.quantize(x, "Q4_K", imatrix=floats))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e39])
def test_refuses_weights_that_are_not_finite(bad):
    weights = np.ones(64)
    weights[5] = bad
    with pytest.raises(ValueTypeError, match=r"weight at \[5\]"):
        quants.quantize(np.zeros((4, 64), np.float32), "Q8_0", imatrix=weights)
