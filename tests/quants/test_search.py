"""Searches for better blocks: never a larger error than ggml's block, and the same everywhere."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import ggufkit._native as _native
import oracle
from ggufkit import quants
from ggufkit.errors import ValueTypeError
from ggufkit.format.types import GGML_TYPES, tensor_type
from ggufkit.quants import kernels, parallel
from ggufkit.quants.search import EFFORTS, SEARCHED, UNSEARCHED
from rule_errors import SQUARES_ALONE, block_errors, search_weights

WIDTH = 512
UNEVEN = np.float32(1e-6)  # by which sums of floats may misjudge an error


def characters(name):
    """Return the characters of arrays that a type can hold: ggml aborts on some on grids."""
    usual = ["normal", "bfloat16", "constants", "positive", "zeros", "mostly zeros", "tiny halves"]
    return usual if name in oracle.GRID_TYPES else oracle.CHARACTERS


def columns(width=WIDTH):
    return np.exp(np.random.default_rng(1).normal(size=width)).astype(np.float32)


def rows(seed=0, height=40, width=WIDTH):
    return np.random.default_rng(seed).standard_t(5, (height, width)).astype(np.float32)


def require_no_block_worse(name, x, importance, search):
    plain = quants.quantize(x, name, imatrix=importance)
    blocks = quants.quantize(x, name, imatrix=importance, search=search)
    with np.errstate(all="ignore"):
        before = block_errors(name, x, importance, plain)
        after = block_errors(name, x, importance, blocks)
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
    name = request.node.callspec.params.get("name", "Q4_0")
    if request.param is None and tensor_type(name).id in kernels.requiring_weights():
        return columns() ** 2
    return request.param and columns()


def test_every_type_is_named_with_a_search_or_without(isa):
    assert sorted(_native.refinable()) == sorted(tensor_type(name).id for name in SEARCHED)
    encodable = [kind for kind in GGML_TYPES.values() if kernels.has_encoder(kind)]
    names = {row.name for row in encodable if row.is_quantized} - {"Q8_1", "Q8_K"}  # not for files
    assert names == {*SEARCHED, *UNSEARCHED}


@pytest.mark.parametrize("search", EFFORTS)
@pytest.mark.parametrize("name", SEARCHED)
def test_no_block_is_worse_than_that_of_ggml_and_all_together_are_better(name, search, importance):
    before, after = require_no_block_worse(name, rows(), importance, search)
    assert after < before


@pytest.mark.parametrize("search", EFFORTS)
@pytest.mark.parametrize("name", SEARCHED)
def test_no_block_of_odd_numbers_is_worse(name, search, importance):
    for character, seed in itertools.product(characters(name), range(3)):
        x = oracle.array(character, 3, WIDTH, seed)
        x = np.where(np.isfinite(x), x, np.float32(0))
        require_no_block_worse(name, x, importance, search)


@pytest.mark.parametrize("name", SEARCHED)
def test_the_best_search_finds_more_than_the_better_one(name, importance):
    x, errors = rows(2), []
    for search in EFFORTS:
        searched = quants.quantize(x, name, imatrix=importance, search=search)
        errors.append(block_errors(name, x, importance, searched, search_weights).sum())
    is_exhausted = name in oracle.GRID_TYPES or name == "MXFP4"
    assert errors[1] <= errors[0] if is_exhausted else errors[1] < errors[0]


@pytest.mark.parametrize("search", EFFORTS)
@pytest.mark.parametrize("name", sorted(SQUARES_ALONE))
def test_without_importance_the_error_without_weights_shrinks_too(name, search):
    x = rows(6)
    plain, searched = (
        quants.quantize(x, name, search=kind_of_search) for kind_of_search in (None, search)
    )
    before, after = (
        np.square(quants.dequantize(blocks, name) - x).sum() for blocks in (plain, searched)
    )
    assert after < before


@pytest.mark.parametrize("search", EFFORTS)
@pytest.mark.parametrize("name", SEARCHED)
def test_outputs_of_inputs_that_vary_together_are_no_worse_than_with_the_blocks_of_ggml(
    name, search
):
    x = np.random.default_rng(7).normal(size=(64, WIDTH)).astype(np.float32)
    moments = np.identity(WIDTH) + x.T @ x / len(x)  # along the rows, as in a trained model
    importance = moments.diagonal().astype(np.float32)

    def lost(search):
        searched = quants.quantize(x, name, imatrix=importance, search=search)
        miss = x - quants.dequantize(searched, name)
        return ((miss @ moments) * miss).sum()

    assert lost(search) < lost(None)


@pytest.mark.parametrize("search", EFFORTS)
@pytest.mark.parametrize("name", SEARCHED)
def test_every_instruction_set_finds_the_blocks_of_the_portable_one(
    isa, name, search, importance, monkeypatch
):
    odd = [oracle.array(character, 1, WIDTH, 0) for character in characters(name)]
    x = np.concatenate([rows(3, 37), *odd])
    ours = quants.encode_rows(x, name, imatrix=importance, search=search)
    monkeypatch.setenv("GGUFKIT_ISA", "portable")
    portable = quants.encode_rows(x, name, imatrix=importance, search=search)
    np.testing.assert_array_equal(ours, portable)


@pytest.mark.parametrize("name", sorted({*SEARCHED} - {*oracle.GRID_TYPES}))
def test_blocks_without_a_finite_error_stay_those_of_ggml(name):
    x = rows(4)
    x[:, 5] = np.inf
    x[:, 300] = np.nan
    first = slice(0, tensor_type(name).block_bytes)
    with np.errstate(all="ignore"):
        searched, plain = (
            quants.encode_rows(x, name, search=kind_of_search) for kind_of_search in ("best", None)
        )
    np.testing.assert_array_equal(searched[:, first], plain[:, first])


@pytest.mark.parametrize("name", SEARCHED)
@pytest.mark.parametrize("threads", [1, 3])
def test_found_blocks_do_not_depend_on_threads_or_pieces(name, threads, importance, monkeypatch):
    x = rows(5, 24)
    once = quants.encode_rows(x, name, imatrix=importance, search="better")
    monkeypatch.setattr(parallel, "TASK", 3 * WIDTH)
    parts = quants.quantize(x, name, imatrix=importance, threads=threads, search="better")
    np.testing.assert_array_equal(parts, once)


@pytest.mark.parametrize("name", sorted({*SEARCHED} - {*oracle.GRID_TYPES}))
def test_zeros_and_single_numbers_keep_their_values(name):
    x = np.zeros((2, WIDTH), np.float32)
    x[1, ::256] = 0.5
    values = quants.dequantize(quants.quantize(x, name, search="best"), name)
    np.testing.assert_allclose(values, x, atol=0.01)  # IQ4 has no level of zero


@pytest.mark.parametrize("name", ["Q8_0", "F16", "TQ2_0"])
def test_types_without_a_search_ignore_it(name):
    x = rows(6)
    np.testing.assert_array_equal(quants.quantize(x, name, search="best"), quants.quantize(x, name))


def test_an_unknown_search_is_refused_with_those_there_are():
    with pytest.raises(ValueTypeError, match=r"no search 'fast'.*better, best"):
        quants.quantize(rows(), "Q4_0", search="fast")
