"""Functions of architecture files, forwards and backwards."""

from __future__ import annotations

import pytest

from ggufkit.conversion.architecture.functions import FUNCTIONS, OPEN

# Arguments of each function that has an inverse; those that the value does not determine are known.
CASES = {
    "adjusted_size": [1536, False, 1.0, 256],
    "alibi_bias": [True, 16],
    "bool": [True],
    "by_layer": [["conv", "full_attention"], "conv", 0, 8],
    "equals": ["gelu", "gelu"],
    "float": [0.1],
    "gating": ["sigmoid"],
    "int": [7],
    "labels": [{"0": "no", "1": "yes"}],
    "nonzero": [3],
    "only_false": [False],
    "only_true": [True],
    "pooling_mode": ["cls"],
    "sliding": [["sliding_attention", "full_attention"]],
    "trained_positions": [8192, 2048],
    "unless": [1, 2, "then"],
    "with_": [1, "value"],
}


def test_every_function_with_an_inverse_has_a_case():
    assert set(CASES) == {name for name, row in FUNCTIONS.items() if row.undo}


@pytest.mark.parametrize("name", CASES)
def test_inverse_gives_arguments_that_restore_the_value(name):
    row, arguments = FUNCTIONS[name], CASES[name]
    value = row.do(*arguments)
    value = getattr(value, "item", lambda: value)()  # as metadata gives it
    found = [*row.undo(value, arguments), *(OPEN for _ in arguments)]
    again = [given if new is OPEN else new for new, given in zip(found, arguments, strict=False)]
    assert row.do(*again) == value
    assert again == arguments


@pytest.mark.parametrize("name", ["gating", "pooling_mode", "trained_positions"])
def test_value_that_no_argument_gives_has_no_solution(name):
    assert all(each is OPEN for each in FUNCTIONS[name].undo(99, [None, None]))
