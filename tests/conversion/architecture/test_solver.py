"""Expressions solved for the fields that give a value."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggufkit.conversion.architecture.config_json import Solver

FUNCTIONS = {"float": np.float32, "int": int}


def solved(text, value, known=None, favoured=(), defaults=None):
    solver = Solver(FUNCTIONS, defaults or {}, [set(favoured)])
    solver.fields.update(known or {})
    solver.solve(text, value)
    return {name: value for name, value in solver.fields.items() if name != "rope" or value}


@pytest.mark.parametrize(
    ("text", "value", "known", "expected"),
    [
        ("width", 64, {}, {"width": 64}),
        ("2 * width", 64, {}, {"width": 32}),
        ("hidden // heads", 16, {"heads": 4}, {"hidden": 64}),
        ("hidden / base", 2.0, {"hidden": 64}, {"base": 32}),
        ("int(part * (hidden // heads))", 4, {"hidden": 64, "heads": 4}, {"part": 0.25}),
        ("positions - (pad + 1)", 512, {"pad": 1}, {"positions": 514}),
        ("float(eps)", float(np.float32(1e-6)), {}, {"eps": 1e-6}),
        ("rope.yarn.beta", 32, {}, {"rope": {"yarn": {"beta": 32}}}),
        ("[rows, heads * (dim or hidden // heads)]", [9, 128], {"heads": 4, "hidden": 64},
         {"rows": 9, "dim": 32}),
        ("by_layer(types, 'conv', 0, heads)", [0, 2, 0], {},
         {"types": ["conv", "full_attention", "conv"], "heads": 2}),
        ("gating(function)", 2, {}, {"function": "sigmoid"}),
        ("labels(names)", ["no", "yes"], {}, {"names": {"0": "no", "1": "yes"}}),
    ],
)  # fmt: skip
def test_solver_finds_the_fields_that_give_the_value(text, value, known, expected):
    assert solved(text, value, known) == {**known, **expected}


def test_solver_takes_the_preferred_alternative_or_else_the_first():
    assert solved("a or b or c", 5) == {"a": 5}
    assert solved("a or b or c", 5, favoured=("b",)) == {"b": 5}
    assert solved("a or b", 5, {"a": 7}) == {"a": 7}


def test_solves_a_field_through_its_default_expression():
    assert solved("count", 3, defaults={"count": "n_layers or n"}) == {"count": 3, "n_layers": 3}


def test_solver_keeps_known_fields():
    assert solved("width", 64, {"width": 32}) == {"width": 32}
    assert solved("heads * dim", 64, {"heads": 0}) == {"heads": 0}


@given(st.integers(1, 10**6), st.integers(1, 10**3))
def test_solves_products_and_sums(unknown, known):
    assert solved("a * k + k", unknown * known + known, {"k": known})["a"] == unknown
