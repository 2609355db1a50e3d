"""Bit identity with ggml when importance weights are given."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import ggufkit._native as _native
import oracle
from ggufkit import quants
from ggufkit.format.types import GGML_TYPES, tensor_type
from ggufkit.quants import parallel

ALL = {row[1]: row[5] for row in _native.codecs("portable") if row[0] in GGML_TYPES}
USES = {name: use for name, use in ALL.items() if name not in oracle.GRID_TYPES}
WEIGHTED = [name for name, use in USES.items() if use]
WITHOUT = [name for name, use in USES.items() if use == 1]
# Only their searches use weights.
SEARCHES = {"MXFP4": "best", "NVFP4": "best"}

# Builds of the newest ggml-quants.c at any optimization level give this library's bytes. The other
# one's compiler was freer: of 50 000 odd blocks, one of Q4_K and one of Q5_K come out different.
PLAIN = "libggml"

SHAPES = [(1, 17), (2, 15), (9, 1), (40, 2), (3, 3)]  # rows and blocks of a row

# Each makes the weights of columns from evenly distributed numbers.
IMPORTANCE = {
    "even": lambda u: u,
    "some zeros": lambda u: np.where(u < 0.5, 0.0, u),
    "all zero": lambda u: u * 0,
    "constant": lambda u: u * 0 + 1,
    "huge": lambda u: u * 1e30,
    "tiny": lambda u: u * 1e-30,
    "of every scale": lambda u: np.exp(60 * u - 30),
    "of either sign": lambda u: u - 0.5,
}


@pytest.fixture(params=quants.instruction_sets())
def isa(request, monkeypatch):
    """Each instruction set that this machine runs, forced."""
    monkeypatch.setenv("GGUFKIT_ISA", request.param)
    return request.param


def columns(kind, width, seed=0):
    even = np.random.default_rng([seed, 1]).random(width)
    return np.ascontiguousarray(IMPORTANCE[kind](even), np.float32)


def rows_of(character, name, shape, seed=0):
    """Return rows whose NaNs are all the default one, as in test_quants."""
    height, blocks = shape
    x = oracle.array(character, height, blocks * tensor_type(name).block_size, seed)
    x[np.isnan(x)] = np.nan
    return x


def require_ggmls(library, name, x, weights, note):
    ours = quants.encode_rows(x, name, imatrix=weights)
    theirs = oracle.encode(library, x, tensor_type(name), weights)
    np.testing.assert_array_equal(ours, theirs, note)


@pytest.mark.real
@pytest.mark.parametrize("library", oracle.LIBRARIES)
@pytest.mark.parametrize("name", WEIGHTED)
def test_weighted_encoding_gives_the_bytes_of_ggml(isa, name, library):
    for character, kind in zip(oracle.CHARACTERS, itertools.cycle(IMPORTANCE)):
        x = rows_of(character, name, (5, 7))
        require_ggmls(library, name, x, columns(kind, x.shape[1]), f"{character}, {kind}")


# Each pair of numbers and weights in one of the shapes, or in all of them.
@pytest.mark.real
@pytest.mark.parametrize(
    "step",
    [
        pytest.param(len(SHAPES), marks=pytest.mark.matrix),
        pytest.param(1, marks=pytest.mark.exhaustive),
    ],
    ids=["one shape", "all shapes"],
)
@pytest.mark.parametrize("name", WEIGHTED)
@pytest.mark.parametrize(("number", "kind"), [*enumerate(IMPORTANCE)], ids=[*IMPORTANCE])
def test_any_weights_on_any_rows_give_the_bytes_of_ggml(isa, name, number, kind, step):
    pairs = [*itertools.product(enumerate(SHAPES), oracle.CHARACTERS)]
    for (seed, shape), character in pairs[number % step :: step]:
        x = rows_of(character, name, shape, seed)
        note = f"{character}, {shape}"
        require_ggmls(PLAIN, name, x, columns(kind, x.shape[1], seed), note)


@pytest.mark.parametrize("name", WEIGHTED)
def test_every_instruction_set_uses_weights_like_the_portable_one(isa, name, monkeypatch):
    for character, kind in zip(oracle.CHARACTERS, itertools.cycle(IMPORTANCE)):
        x = rows_of(character, name, (6, 3))
        weights = columns(kind, x.shape[1])
        ours = quants.encode_rows(x, name, imatrix=weights)
        monkeypatch.setenv("GGUFKIT_ISA", "portable")
        portable = quants.encode_rows(x, name, imatrix=weights)
        np.testing.assert_array_equal(ours, portable, f"{character}, {kind}")
        monkeypatch.setenv("GGUFKIT_ISA", isa)


@pytest.mark.parametrize("odd", [np.nan, np.inf, 1e20])
@pytest.mark.parametrize("name", WEIGHTED)
def test_one_odd_number_in_the_last_lane_is_encoded_like_by_the_portable_set(
    isa, name, odd, monkeypatch
):
    x = rows_of("normal", name, (8, 2), 1)
    x[-1, -1] = odd
    weights = columns("constant", x.shape[1])
    ours = quants.encode_rows(x, name, imatrix=weights)
    monkeypatch.setenv("GGUFKIT_ISA", "portable")
    np.testing.assert_array_equal(ours, quants.encode_rows(x, name, imatrix=weights))


@pytest.mark.parametrize("name", WITHOUT)
def test_weights_make_a_difference(name):
    x, search = rows_of("normal", name, (2, 2)), SEARCHES.get(name)
    weights = columns("of every scale", x.shape[1])
    weighted = quants.encode_rows(x, name, imatrix=weights, search=search)
    assert not np.array_equal(weighted, quants.encode_rows(x, name, search=search))


@pytest.mark.parametrize("name", WEIGHTED)
@pytest.mark.parametrize("threads", [1, 3])
def test_weighted_result_does_not_depend_on_threads_or_pieces(name, threads, monkeypatch):
    x = rows_of("normal", name, (24, 2))
    weights = columns("even", x.shape[1])
    once = quants.encode_rows(x, name, imatrix=weights)
    monkeypatch.setattr(parallel, "TASK", 3 * x.shape[1])
    parts = quants.quantize(x, name, imatrix=weights, threads=threads)
    np.testing.assert_array_equal(parts, once)
    monkeypatch.setattr(parallel, "TASK", x.shape[1] // 2)
    parts = quants.quantize(x, name, imatrix=weights, threads=threads)
    np.testing.assert_array_equal(parts, once)


@pytest.mark.parametrize("name", WEIGHTED)
def test_each_expert_uses_its_own_row_of_weights(name):
    x = rows_of("normal", name, (12, 2)).reshape(3, 4, -1)
    search = SEARCHES.get(name)
    kind = "of every scale" if search else "even"
    weights = np.stack([columns(kind, x.shape[-1], seed) for seed in range(3)])
    together = quants.quantize(x, name, imatrix=weights, search=search)
    for expert, own, packed in zip(x, weights, together, strict=True):
        alone = quants.quantize(expert, name, imatrix=own, search=search)
        np.testing.assert_array_equal(packed, alone)
    shared = quants.quantize(x, name, imatrix=weights[0], search=search)
    np.testing.assert_array_equal(shared[0], together[0])
    assert not np.array_equal(shared[1], together[1])
