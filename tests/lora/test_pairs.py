"""An operation on the factors of a matrix equals the operation on the matrix."""

from __future__ import annotations

import numpy as np
import pytest

from ggufkit.conversion.tensors.operations import OPERATIONS, perform
from ggufkit.errors import AdapterError
from ggufkit.lora.pairs import PAIR_MOVES, Pair, as_tensors, checked
from ggufkit.models.sources import from_array

ROWS, COLUMNS, RANK = 24, 6, 2
RNG = np.random.default_rng(3)
# Arguments of each operation that suit a matrix of these rows.
ARGUMENTS = {
    "every": [1, 2], "part": [2, 8], "permute": [3], "regroup": [2, 3, 1], "regroup_rows": [2, 3],
    "rows": [3, 9], "scale": [0.5], "split": [1, 3], "unflatten": [4, -1], "unpermute": [3],
    "unsqueeze": [0], "transpose": [], "pad_rows": [32], "zeros_before": [2],
}  # fmt: skip


def tensor(*shape):
    return from_array("w", RNG.standard_normal(shape).astype(np.float32))


def dense(pair):
    product = pair.b.numpy() @ pair.a.numpy()
    return from_array("w", np.ascontiguousarray(product))


@pytest.mark.parametrize("name", ARGUMENTS)
def test_operation_on_factors_equals_operation_on_matrix(name):
    pair = Pair("w", tensor(RANK, COLUMNS), tensor(ROWS, RANK))
    done = PAIR_MOVES.perform(pair, name, ARGUMENTS[name])
    expected = perform(dense(pair), name, ARGUMENTS[name])
    assert done.shape == expected.shape
    np.testing.assert_allclose(dense(done).numpy(), expected.numpy(), rtol=1e-6)


@pytest.mark.parametrize("name", sorted(OPERATIONS.keys() - ARGUMENTS.keys()))
def test_other_operations_are_refused_or_keep_the_columns(name):
    pair = Pair("w", tensor(RANK, COLUMNS), tensor(ROWS, RANK))
    others = {"reshape": [ROWS * COLUMNS], "squeeze": [0], "flatten": [ROWS, COLUMNS]}
    arguments = others.get(name, [1])
    with pytest.raises((AdapterError, ValueError)):
        PAIR_MOVES.perform(pair, name, [] if name in ("neg_exp", "center") else arguments)


def test_stacked_experts_keep_their_factors():
    pairs = [Pair(f"e{n}", tensor(RANK, COLUMNS), tensor(ROWS, RANK)) for n in range(3)]
    stacked = PAIR_MOVES.stack("all", pairs)
    assert stacked.shape == (3, ROWS, COLUMNS)
    for number, pair in enumerate(pairs):
        np.testing.assert_array_equal(dense(stacked).numpy()[number], dense(pair).numpy())


def test_joining_needs_a_common_factor():
    first = Pair("x", tensor(RANK, COLUMNS), tensor(ROWS, RANK))
    second = Pair("y", first.a, tensor(ROWS, RANK))
    joined = PAIR_MOVES.concat("both", [first, second])
    expected = np.concatenate([dense(first).numpy(), dense(second).numpy()])
    np.testing.assert_allclose(dense(joined).numpy(), expected, rtol=1e-6)
    with pytest.raises(AdapterError, match="differ in their factor A"):
        PAIR_MOVES.concat("both", [first, Pair("z", tensor(RANK, COLUMNS), second.b)])


@pytest.mark.parametrize("shapes", [((2, 6), (4, 3)), ((6,), (4,)), ((3, 2, 6), (2, 4, 2))])
def test_factors_without_a_common_rank_are_refused(shapes):
    with pytest.raises(AdapterError, match="no common rank"):
        checked("w", *(tensor(*shape) for shape in shapes))


def test_factors_of_embeddings_are_stored_as_llama_cpp_picks_them():
    pair = Pair("token_embd.weight", tensor(RANK, COLUMNS), tensor(ROWS, RANK))
    a, b = as_tensors(pair)
    assert (a.name, a.shape) == ("token_embd.weight.lora_a", (ROWS, RANK))
    assert (b.name, b.shape) == ("token_embd.weight.lora_b", (COLUMNS, RANK))
