"""Functions of architecture files, forwards and backwards."""

from __future__ import annotations

import pytest

from ggufkit.conversion.architecture.functions import FUNCTIONS
from ggufkit.conversion.architecture.layer_lists import OPEN

# Arguments of each function that has an inverse; those that the value does not determine are known.
CASES = {
    "adjusted_size": [1536, False, 1.0, 256],
    "alibi_bias": [True, 16],
    "are": [["full", "shared"], "full", "shared"],
    "at_layers": [5, [1, 3], 8, 0],
    "bool": [True],
    "by_layer": [["conv", "full_attention"], "conv", 0, 8],
    "count": [[0, 1, 2]],
    "equals": ["gelu", "gelu"],
    "float": [0.1],
    "gating": ["sigmoid"],
    "int": [7],
    "labels": [{"0": "no", "1": "yes"}],
    "linear": [["linear_attention", "full_attention"], 2, 3],
    "nonzero": [3],
    "only_false": [False],
    "only_true": [True],
    "periodic": [6, 1, 2, 8, 0],
    "pooling_mode": ["cls"],
    "sliding": [["sliding_attention", "full_attention"]],
    "sparsity_scale": [[0.95, 0.0]],
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


def test_layers_of_two_kinds_keep_both_names():
    row = FUNCTIONS["by_layer"]
    known = [None, "attention", None, 0, "mamba"]
    assert [*row.undo([0, 4], known)] == [["mamba", "attention"], OPEN, 4, OPEN]


def test_quantile_of_gemma_3n_is_pytorchs():
    assert FUNCTIONS["sparsity_scale"].do([0.95])[0] == 1.6448535919189453


def test_dynamic_base_is_hunyuans():
    base = FUNCTIONS["hunyuan_base"].do
    assert round(base("dynamic", 10000.0, 1000, 128), 4) == 11158839.9251
    assert base("yarn", 10000.0, 1000, 128) is None
