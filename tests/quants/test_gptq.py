"""Errors that are fed back from column to column, measured on inputs that were held out."""

from __future__ import annotations

import numpy as np
import pytest

from ggufkit import quants
from ggufkit.format.types import tensor_type
from ggufkit.quants.gptq import LEAST_DAMPING, Gptq, factor_of, moment_errors
from ggufkit.quants.search import SEARCHED, UNSEARCHED

WIDTH, ROWS, TOKENS = 256, 32, 2048


@pytest.fixture(scope="module")
def moments():
    """Return the moments of correlated inputs: to quantize with, and held out."""
    rng = np.random.default_rng(4)
    mixing = rng.standard_normal((WIDTH, WIDTH)) * (np.arange(1, WIDTH + 1) ** -0.6)[:, None]
    inputs = (rng.standard_normal((2 * TOKENS, WIDTH)) @ mixing).astype(np.float32)
    return [np.triu(part.T @ part) / np.float32(TOKENS) for part in np.split(inputs, 2)]


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(5).standard_normal((ROWS, WIDTH), np.float32)


def errors_of(name, rows, moments):
    """Return the errors on inputs held out: plain, and with feedback."""
    kind, (fitted, held_out) = tensor_type(name), moments
    plain = quants.quantize(rows, name, imatrix=np.diag(fitted).copy())
    encoded = Gptq.of(factor_of(fitted), kind).encode(rows, kind)
    return [
        moment_errors(rows - quants.dequantize(blocks, name), held_out).sum()
        for blocks in (plain, encoded)
    ]


@pytest.mark.parametrize("name", SEARCHED)
def test_feedback_halves_the_error_on_inputs_held_out(name, rows, moments):
    before, after = errors_of(name, rows, moments)
    assert after < 0.5 * before


@pytest.mark.parametrize("name", UNSEARCHED)
def test_types_of_whole_blocks_take_feedback_from_block_to_block(name, rows, moments):
    before, after = errors_of(name, rows, moments)
    is_one_block = tensor_type(name).block_size == WIDTH
    assert after == before if is_one_block else after < 0.9 * before


def test_search_finds_scales_for_feedback(rows, moments):
    kind, (fitted, held_out) = tensor_type("IQ2_S"), moments
    feedback = Gptq.of(factor_of(fitted), kind)
    plain, best = (
        moment_errors(
            rows - quants.dequantize(feedback.encode(rows, kind, search=search), kind), held_out
        ).sum()
        for search in (None, "best")
    )
    assert best < plain


def test_factor_is_a_triangle_whose_product_is_the_damped_moments(moments):
    factor, diagonal = factor_of(moments[0], 0.1), np.diag(moments[0])
    expected = moments[0] + np.diag(0.1 * diagonal + LEAST_DAMPING * diagonal.mean())
    expected += np.triu(moments[0], 1).T
    np.testing.assert_allclose(factor @ factor.T, expected, atol=1e-4 * expected.max())
    assert not np.tril(factor, -1).any()


def test_moments_that_are_not_positive_have_no_factor():
    assert factor_of(np.diag(np.array([1, -1, 1], np.float32)), 0.1) is None
    assert factor_of(np.zeros((3, 3), np.float32), 1.0) is None


@pytest.mark.parametrize("name", ["Q4_K", "IQ3_S"])
def test_inputs_that_do_not_go_together_leave_the_blocks_as_they_are(name, rows):
    kind = tensor_type(name)
    diagonal = np.random.default_rng(6).random(WIDTH, np.float32) + np.float32(0.5)
    encoded = Gptq.of(factor_of(np.diag(diagonal), 0), kind).encode(rows, kind)
    plain = quants.quantize(rows, name, imatrix=diagonal)
    before, after = (
        (np.square(rows - quants.dequantize(blocks, name)) @ diagonal).sum()
        for blocks in (plain, encoded)
    )
    assert after <= 1.001 * before
