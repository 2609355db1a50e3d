"""Searches for better blocks: never a larger error than ggml's block, and the same everywhere."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import ggufkit._native as _native
import oracle
from ggufkit import quants
from ggufkit.errors import ValueTypeError
from ggufkit.format.types import tensor_type
from ggufkit.quants import parallel
from ggufkit.quants.search import EFFORTS, SEARCHED

WIDTH = 512
UNEVEN = np.float32(1e-6)  # by which sums of floats may misjudge an error


def repeated(values, count):
    return np.repeat(values, count, axis=-1)


def mean_squares(x, count):
    return repeated((x.reshape(len(x), -1, count) ** 2).mean(axis=2), count)


def rule_weights(name, x, importance):
    """Return the weights of elements in the error that ggml's rule for `name` aims at."""
    x = x.astype(np.float64)
    weighted = importance is not None
    columns = importance.astype(np.float64) if weighted else None
    if name in {"Q4_0", "Q4_1", "Q5_0", "Q5_1"}:
        rows = np.square(x).mean(axis=1, keepdims=True)
        return columns * np.sqrt(rows + x * x) if weighted else np.ones_like(x)
    if name == "Q6_K" and weighted:
        return columns + 0 * x
    if weighted:
        size, share = {"IQ4_NL": (32, 2), "Q2_K": (256, 1)}.get(name, (256, 2))
        return columns * np.sqrt(share * mean_squares(x, size) + x * x)
    if name in {"Q4_K", "Q5_K"}:
        return np.sqrt(mean_squares(x, 32)) + abs(x)
    return abs(x) if name == "Q2_K" else x * x


def block_errors(name, x, importance, packed):
    """Return the weighted error of each block; ggml's plain rule for Q2_K adds distances."""
    miss = abs(x - quants.dequantize(packed, name).astype(np.float64))
    if name != "Q2_K" or importance is not None:
        miss = miss * miss
    error = rule_weights(name, x, importance) * miss
    return error.reshape(len(x), -1, tensor_type(name).block_size).sum(axis=2)


def columns(width=WIDTH):
    return np.exp(np.random.default_rng(1).normal(size=width)).astype(np.float32)


def rows(seed=0, height=40, width=WIDTH):
    return np.random.default_rng(seed).standard_t(5, (height, width)).astype(np.float32)


def require_no_block_worse(name, x, importance, search):
    plain = quants.quantize(x, name, imatrix=importance)
    found = quants.quantize(x, name, imatrix=importance, search=search)
    with np.errstate(all="ignore"):
        before = block_errors(name, x, importance, plain)
        after = block_errors(name, x, importance, found)
    known = np.isfinite(before)
    assert (after[known] <= before[known] * (1 + UNEVEN)).all()
    return before[known].sum(), after[known].sum()


@pytest.fixture(params=quants.instruction_sets())
def isa(request, monkeypatch):
    """Each instruction set that this machine runs, forced."""
    monkeypatch.setenv("GGUFKIT_ISA", request.param)
    return request.param


@pytest.fixture(params=[None, "weighted"])
def importance(request):
    """No importance, or a weight for each column."""
    return request.param and columns()


def test_every_instruction_set_has_the_named_searches(isa):
    assert sorted(_native.improvable()) == sorted(tensor_type(name).id for name in SEARCHED)


@pytest.mark.parametrize("search", EFFORTS)
@pytest.mark.parametrize("name", SEARCHED)
def test_no_block_is_worse_than_that_of_ggml_and_all_together_are_better(name, search, importance):
    before, after = require_no_block_worse(name, rows(), importance, search)
    assert after < before


@pytest.mark.parametrize("search", EFFORTS)
@pytest.mark.parametrize("name", SEARCHED)
def test_no_block_of_odd_numbers_is_worse(name, search, importance):
    for character, seed in itertools.product(oracle.CHARACTERS, range(3)):
        x = oracle.array(character, 3, WIDTH, seed)
        x = np.where(np.isfinite(x), x, np.float32(0))
        require_no_block_worse(name, x, importance, search)


@pytest.mark.parametrize("name", SEARCHED)
def test_the_best_search_finds_more_than_the_better_one(name, importance):
    errors = [require_no_block_worse(name, rows(2), importance, each)[1] for each in EFFORTS]
    assert errors[1] < errors[0]


@pytest.mark.parametrize("search", EFFORTS)
@pytest.mark.parametrize("name", SEARCHED)
def test_every_instruction_set_finds_the_blocks_of_the_portable_one(
    isa, name, search, importance, monkeypatch
):
    odd = [oracle.array(character, 1, WIDTH, 0) for character in oracle.CHARACTERS]
    x = np.concatenate([rows(3, 37), *odd])
    ours = quants.encode_rows(x, name, imatrix=importance, search=search)
    monkeypatch.setenv("GGUFKIT_ISA", "portable")
    portable = quants.encode_rows(x, name, imatrix=importance, search=search)
    np.testing.assert_array_equal(ours, portable)


@pytest.mark.parametrize("name", SEARCHED)
def test_blocks_without_a_finite_error_stay_those_of_ggml(name):
    x = rows(4)
    x[:, 5] = np.inf
    x[:, 300] = np.nan
    first = slice(0, tensor_type(name).block_bytes)
    with np.errstate(all="ignore"):
        found, plain = (quants.encode_rows(x, name, search=each) for each in ("best", None))
    np.testing.assert_array_equal(found[:, first], plain[:, first])


@pytest.mark.parametrize("name", SEARCHED)
@pytest.mark.parametrize("threads", [1, 3])
def test_found_blocks_do_not_depend_on_threads_or_pieces(name, threads, importance, monkeypatch):
    x = rows(5, 24)
    once = quants.encode_rows(x, name, imatrix=importance, search="better")
    monkeypatch.setattr(parallel, "TASK", 3 * WIDTH)
    parts = quants.quantize(x, name, imatrix=importance, threads=threads, search="better")
    np.testing.assert_array_equal(parts, once)


@pytest.mark.parametrize("name", SEARCHED)
def test_zeros_and_single_numbers_keep_their_values(name):
    x = np.zeros((2, WIDTH), np.float32)
    x[1, ::256] = 0.5
    found = quants.dequantize(quants.quantize(x, name, search="best"), name)
    np.testing.assert_allclose(found, x, atol=0.01)  # IQ4 has no level of zero


@pytest.mark.parametrize("name", ["Q8_0", "F16", "TQ2_0"])
def test_types_without_a_search_ignore_it(name):
    x = rows(6)
    np.testing.assert_array_equal(quants.quantize(x, name, search="best"), quants.quantize(x, name))


def test_an_unknown_search_is_refused_with_those_there_are():
    with pytest.raises(ValueTypeError, match=r"no search 'fast'.*better, best"):
        quants.quantize(rows(), "Q4_0", search="fast")
