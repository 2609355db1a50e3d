"""Functions of architecture files, forwards and backwards."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from ggufkit.conversion.architecture.functions import FUNCTIONS
from ggufkit.conversion.architecture.layer_lists import OPEN
from ggufkit.errors import CheckpointError
from ggufkit.models.sources import from_array

# Arguments of each function that has an inverse; those that the value does not determine are known.
CASES = {
    "adjusted_size": [1536, False, 1.0, 256],
    "alibi_bias": [True, 16],
    "are": [["full", "shared"], "full", "shared"],
    "at_layers": [5, [1, 3], 8, 0],
    "bool": [True],
    "by_kind": [["sliding_attention", "full_attention"], "sliding_attention", 8, 2],
    "by_layer": [["conv", "full_attention"], "conv", 0, 8],
    "count": [[0, 1, 2]],
    "divisible_sizes": [[1.5, 2.0], 64, 32],
    "each": [3, 2.5],
    "equals": ["gelu", "gelu"],
    "extended": [[1, 0, 1, 1], 4, 1],
    "float": [0.1],
    "floats": [[0.0, 7.5]],
    "gating": ["sigmoid"],
    "int": [7],
    "labels": [{"0": "no", "1": "yes"}],
    "last": [7],
    "last_of_groups": [7, 3, 8],
    "linear": [["linear_attention", "full_attention"], 2, 3],
    "nonzero": [3],
    "only_false": [False],
    "only_true": [True],
    "periodic": [6, 1, 2, 8, 0],
    "pooling_mode": ["cls"],
    "shifted": [[2, 4], -1],
    "sliding": [["sliding_attention", "full_attention"]],
    "sparsity_scale": [[0.95, 0.0]],
    "trained_positions": [8192, 2048],
    "unless": [1, 2, "then"],
    "widened": [96, 4, 2, True],
    "with_": [1, "value"],
}


def test_every_function_with_an_inverse_has_a_case():
    assert set(CASES) == {name for name, row in FUNCTIONS.items() if row.undo}


@pytest.mark.parametrize("name", CASES)
def test_inverse_gives_arguments_that_restore_the_value(name):
    row, arguments = FUNCTIONS[name], CASES[name]
    value = row.do(*arguments)
    value = getattr(value, "item", lambda: value)()  # as metadata gives it
    solution = [*row.undo(value, arguments), *(OPEN for _ in arguments)]
    again = [
        argument if new is OPEN else new for new, argument in zip(solution, arguments, strict=False)
    ]
    assert row.do(*again) == value
    assert again == arguments


@pytest.mark.parametrize("name", ["gating", "pooling_mode", "trained_positions"])
def test_value_that_no_argument_gives_has_no_solution(name):
    assert all(solution is OPEN for solution in FUNCTIONS[name].undo(99, [None, None]))


def test_layers_of_two_kinds_keep_both_names():
    row = FUNCTIONS["by_layer"]
    known = [None, "attention", None, 0, "mamba"]
    assert [*row.undo([0, 4], known)] == [["mamba", "attention"], OPEN, 4, OPEN]


@pytest.mark.parametrize(("heads", "most"), [(4, 8), (12, 8), (16, 16)])
def test_slopes_of_alibi_give_the_bias_that_made_them(heads, most):
    closest = 2 ** (heads.bit_length() - 1)
    slopes = np.float32(2.0) ** (-most / closest * np.arange(1, heads + 1))
    tensors = {"transformer.relative_pe.slopes": from_array("s", slopes.astype(np.float32))}
    facts = SimpleNamespace(checkpoint=SimpleNamespace(tensors=tensors))
    assert FUNCTIONS["bias_of_slopes"].do(facts, heads) == most
    tensors.clear()
    assert FUNCTIONS["bias_of_slopes"].do(facts, heads) is None


def test_zero_rows_are_ids_beyond_the_vocabulary_of_the_tokenizer():
    rows = np.zeros((6, 2), np.float32)
    rows[[0, 4]] = 1, 0.5
    files = {"tokenizer.json": {"model": {"vocab": {"a": 0, "b": 1, "c": 2}}}}
    checkpoint = SimpleNamespace(json=files.get, tensors={"embeddings": from_array("e", rows)})
    zero_rows = FUNCTIONS["zero_rows"].do
    assert zero_rows(SimpleNamespace(checkpoint=checkpoint), "embeddings") == [3, 5]
    assert zero_rows(SimpleNamespace(checkpoint=checkpoint), "others") is None


def test_integers_of_a_tensor_are_exact_and_unsigned():
    large = np.array([2**45 + 1, 7], np.int64)
    checkpoint = SimpleNamespace(tensors={"a.b": from_array("a.b", large)})
    facts = SimpleNamespace(checkpoint=checkpoint)
    assert FUNCTIONS["integers"].do(facts, ".b").tolist() == [2**45 + 1, 7]
    assert FUNCTIONS["integers"].do(facts, ".c") is None


def test_layers_of_a_kind_without_a_name_have_no_solution():
    known = [None, "attention", None, 0, None]
    assert [*FUNCTIONS["by_layer"].undo([0, 4], known)] == []


def test_quantile_of_gemma_3n_is_pytorchs():
    assert FUNCTIONS["sparsity_scale"].do([0.95])[0] == 1.6448535919189453


def test_dynamic_base_is_hunyuans():
    base = FUNCTIONS["hunyuan_base"].do
    assert round(base("dynamic", 10000.0, 1000, 128), 4) == 11158839.9251
    assert base("yarn", 10000.0, 1000, 128) is None


def test_number_of_one_kind_of_layer_is_one_number():
    row = FUNCTIONS["by_kind"]
    types = ["sliding_attention", "full_attention"]
    assert row.do(types, "sliding_attention", 8, 0) == 8
    assert [*row.undo(8, [types, None, None, None])] == [OPEN, OPEN, 8, 0]
    assert row.undo([8, 2], [None, "sliding_attention", None, None]) == ()


def test_hybrid_layers_are_read_as_letters_and_as_words():
    kinds = FUNCTIONS["layer_kinds"].do
    assert kinds("M-*E") == kinds(["mamba", "mlp", "full_attention", "moe"])
    assert FUNCTIONS["hybrid_pattern"].do([0, 0, 4], [0, 96, 0], "-") == "M-*"
    with pytest.raises(CheckpointError, match="'X'"):
        kinds("MX")


def test_numbers_of_full_layers_are_those_of_the_first_that_has_some():
    config = {"1": {"head_dim": 16}, "2": {"heads": 1}, "3": {"head_dim": 32}}
    types = ["full_attention", "sliding_attention", "full_attention", "full_attention"]
    assert FUNCTIONS["of_full_layers"].do(config, types, "head_dim") == 32
    assert FUNCTIONS["of_full_layers"].do(config, types, "theta") is None


def test_fields_of_ids_name_some_of_so_many_ids():
    config = {"codec_end_id": 3, "language_id": {"english": 1}, "count": 2, "other_id": None}
    assert FUNCTIONS["ids_named"].do(config, 5, "codec") == [
        "<|codec_0|>", "<|language_english|>", "<|codec_2|>", "<|codec_end|>", "<|codec_4|>",
    ]  # fmt: skip
    assert FUNCTIONS["ids_but"].do(5, 9, 7) == [5, 6, 8]
