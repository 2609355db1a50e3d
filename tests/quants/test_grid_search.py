"""Bit identity of the types on grids (IQ1 to IQ3) with ggml, which aborts on some arrays."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest

import ggufkit._native as _native
import oracle
import surviving
from ggufkit import quants
from ggufkit.errors import TensorTypeError, ValueTypeError
from ggufkit.format.types import tensor_type

USES = {row[1]: row[5] for row in _native.codecs("portable")}
REQUIRED = 2
RAGGED = (2, 3 * 256)
SHAPES = [(1, 256), (7, 256), (1, 15 * 256), (1, 17 * 256), (3, 2 * 256)]

# Each makes the weights of columns from evenly distributed numbers.
IMPORTANCE = {
    "even": lambda u: u + 0.01,
    "some zeros": lambda u: np.where(u < 0.5, 0.0, u),
    "constant": lambda u: u * 0 + 1,
    "huge": lambda u: u * 1e30,
    "tiny": lambda u: u * 1e-30,
    "of every scale": lambda u: np.exp(60 * u - 30),
    "of either sign": lambda u: u - 0.5,
}
LEAST = (1e-8, 1e-15, 2.0**-149)  # groups of smaller numbers are empty


def weights_of(kind, width, seed):
    even = np.random.default_rng([seed, 1]).random(width)
    return None if kind is None else np.ascontiguousarray(IMPORTANCE[kind](even), np.float32)


def kinds_for(name, kinds):
    return [*kinds] if USES[name] == REQUIRED else [None, *kinds]


def assert_is_ggmls(monkeypatch, name, cases, library="llama.cpp"):
    """Hold every instruction set to ggml; return how many arrays ggml encoded."""
    notes, pairs = zip(*cases, strict=True)
    outcomes = surviving.encode(library, tensor_type(name), pairs)
    for isa in quants.instruction_sets():
        monkeypatch.setenv("GGUFKIT_ISA", isa)
        for note, (x, weights), theirs in zip(notes, pairs, outcomes, strict=True):
            if theirs is None:
                with pytest.raises(ValueTypeError, match=f"{name} does not hold"):
                    quants.encode_rows(x, name, imatrix=weights)
            else:
                ours = quants.encode_rows(x, name, imatrix=weights)
                np.testing.assert_array_equal(ours, theirs, f"{isa}, {note}")
    return sum(outcome is not None for outcome in outcomes)


def case(character, kind, shape, seed):
    weights = weights_of(kind, shape[1], seed)
    return (character, kind, shape, seed), (oracle.array(character, *shape, seed), weights)


@pytest.mark.real
@pytest.mark.parametrize("name", oracle.GRID_TYPES)
def test_grid_types_give_the_bytes_of_ggml_and_refuse_what_aborts_it(monkeypatch, name):
    kinds = kinds_for(name, ["even"])
    cases = [case(c, kind, RAGGED, 0) for c, kind in itertools.product(oracle.CHARACTERS, kinds)]
    cases += [case("normal", kind, RAGGED, 0) for kind in IMPORTANCE]
    assert assert_is_ggmls(monkeypatch, name, cases) > len(cases) / 3


@pytest.mark.real
@pytest.mark.parametrize("name", oracle.GRID_TYPES)
def test_groups_of_the_least_numbers_are_not_empty(monkeypatch, name):
    _, (signs, weights) = case("two values", "even", (1, 512), 1)
    cases = [(least, (signs * np.float32(least), weights)) for least in LEAST]
    assert assert_is_ggmls(monkeypatch, name, cases) == len(cases)


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
@pytest.mark.parametrize(("seed", "shape"), [*enumerate(SHAPES)])
@pytest.mark.parametrize("name", oracle.GRID_TYPES)
def test_grid_types_give_the_bytes_of_ggml_for_all_weights_and_shapes(
    monkeypatch, name, shape, seed, step
):
    pairs = [*itertools.product(oracle.CHARACTERS, kinds_for(name, IMPORTANCE))]
    cases = [case(c, kind, shape, seed) for c, kind in pairs[seed % step :: step]]
    assert_is_ggmls(monkeypatch, name, cases)


@pytest.mark.real
@pytest.mark.parametrize("name", [name for name in oracle.GRID_TYPES if name != "IQ1_M"])
def test_both_builds_of_ggml_agree_on_usual_rows(monkeypatch, name):
    """IQ1_M has changed since libggml's release."""
    cases = [case("heavy tails", "even", (3, 1024), 0), case("bfloat16", "even", (3, 1024), 0)]
    assert assert_is_ggmls(monkeypatch, name, cases, "libggml") == len(cases)


@pytest.mark.parametrize("name", oracle.GRID_TYPES)
def test_each_block_of_a_row_encodes_the_same_as_alone(monkeypatch, name):
    x = oracle.array("heavy tails", 1, 17 * 256, 5)
    weights = weights_of("even", x.size, 5)
    for isa in quants.instruction_sets():
        monkeypatch.setenv("GGUFKIT_ISA", isa)
        parts = zip(np.split(x, 17, axis=1), np.split(weights, 17), strict=True)
        alone = [quants.encode_rows(part, name, imatrix=own) for part, own in parts]
        whole = quants.encode_rows(x, name, imatrix=weights)
        np.testing.assert_array_equal(whole, np.concatenate(alone, axis=1))


@pytest.mark.parametrize("name", [name for name in oracle.GRID_TYPES if USES[name] == REQUIRED])
def test_error_says_that_a_type_requires_weights(name):
    with pytest.raises(TensorTypeError, match=f"{name} cannot be encoded without"):
        quants.quantize(np.ones((1, 256), np.float32), name)


def test_names_blocks_on_which_ggml_aborts_and_the_reason():
    x = oracle.array("normal", 3, 512)
    x[2, 300] = np.nan
    with pytest.raises(ValueTypeError, match=r"IQ3_S does not hold nan, .*row 2, columns from 256"):
        quants.quantize(x, "IQ3_S")
    with pytest.raises(ValueTypeError, match=r"hold nan, .*row 2, columns from 256"):
        quants.requantize(x.view(np.uint8), "F32", "IQ3_S")
    x[1, 5] = 1e38
    with pytest.raises(ValueTypeError, match=r"hold numbers this large .*row 1, columns from 0 on"):
        quants.encode_rows(x, "IQ3_S")
    many = oracle.array("normal", 40, 512)
    many[38, 300] = np.nan
    with pytest.raises(ValueTypeError, match=r"row 38, columns from 256"):
        quants.encode_rows(many, "IQ3_S")


RACE = """
from concurrent.futures import ThreadPoolExecutor
import functools, numpy as np
import oracle
from ggufkit import quants
x = oracle.array("normal", 8, 256)
with ThreadPoolExecutor(8) as pool:
    rows = list(pool.map(functools.partial(quants.encode_rows, type="IQ2_S"), np.split(x, 8)))
assert np.array_equal(np.concatenate(rows), quants.encode_rows(x, "IQ2_S"))
"""


def test_threads_wait_while_a_grid_is_first_built():
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    subprocess.run([sys.executable, "-c", RACE], check=True, env=environment)
