"""Inverses of operations restore the original tensors."""

from __future__ import annotations

import numpy as np
import pytest

from ggufkit.conversion.architecture.name_rules import Step
from ggufkit.conversion.invert_mapping import ConvertedTensor, undone
from ggufkit.conversion.tensors.operations import OPERATIONS, perform
from ggufkit.errors import CheckpointError, ShapeError
from ggufkit.models.sources import from_array

RNG = np.random.default_rng(11)


def numbers(*shape):
    return RNG.normal(size=shape).astype(np.float32)


# One chain of operations for each target of a rule.
CASES = {
    "permute": (numbers(16, 3), [["permute 4"]]),
    "unpermute": (numbers(16, 3), [["unpermute 2"]]),
    "regroup": (numbers(24, 3), [["regroup 4 1 1 1"]]),
    "regroup shared heads": (numbers(32, 3), [["regroup 2 2 1 1"]]),
    "regroup_rows": (numbers(28, 3), [["regroup_rows 4 3 4"]]),
    "regroup_heads": (numbers(24, 3), [["regroup_heads 2 4 2 8"]]),
    "regroup_columns": (numbers(5, 24), [["regroup_columns 4 3"]]),
    "regroup sizes": (numbers(24, 3), [["regroup 2 3 4 5"]]),
    "bias": (numbers(24), [["regroup 4 1 1 1"]]),
    "transpose": (numbers(4, 6), [["transpose"]]),
    "stack": (numbers(3, 4, 6), [["transpose"]]),
    "axes": (numbers(4, 3, 5), [["axes 1 2 0"]]),
    "squeeze": (numbers(4, 1, 6), [["squeeze 1"]]),
    "unsqueeze": (numbers(4, 6), [["unsqueeze 2"]]),
    "zeros_before": (numbers(3, 2, 4), [["zeros_before 1"]]),
    "unflatten": (numbers(6, 5), [["unflatten 2 -1"]]),
    "vector as column": (numbers(6), [["unflatten -1 1"]]),
    "scale": (numbers(4, 4), [["scale 0.5"]]),
    "scale_runs": (numbers(4, 4), [["scale_runs 1 0.5 3 0.25"]]),
    "scale_runs in turns": (numbers(8, 4), [["scale_runs 2 1 2 -1"]]),
    "exchange": (numbers(10, 3), [["exchange 5 0 3"]]),
    "flatten": (numbers(2, 3, 5), [["flatten 2 3"]]),
    "vector": (numbers(6), [["vector"]]),
    "ternary": (np.float32([[0.5, 0], [-0.5, 0.5]]), [["ternary"]]),
    "int32": (np.array([[3, 1], [5, -9]]), [["int32"]]),
    "product": (np.vstack([np.ones(5, "f4"), numbers(5)]), [["product 0"]]),
    "side_by_side": (numbers(6, 5), [["side_by_side 2"]]),
    "target_ids": (np.array([3, 1, 5, 9]), [["target_ids 99"]]),
    "pad_rows": (numbers(4, 4), [["pad_rows 4"]]),
    "spread": (np.tile(numbers(1, 4), (3, 1)), [["spread 3"]]),
    "split": (numbers(8, 3), [["split 0 2"], ["split 1 2"]]),
    "split of a stack": (numbers(3, 8, 5), [["split 1 2"], ["split 0 2"]]),
    "every": (numbers(3, 8, 5), [["every 0 2"], ["every 1 2"]]),
    "halves of a bias": (
        numbers(3, 8),
        [["unsqueeze 2", "every 0 2", "squeeze 2"], ["unsqueeze 2", "every 1 2", "squeeze 2"]],
    ),
    "unequal parts": (
        numbers(20, 6),
        [["unflatten 4 5", "part 0 2", "transpose"], ["unflatten 4 5", "part 2 5"]],
    ),
    "shared groups": (
        numbers(32, 3),
        [
            ["regroup 2 2 1 1", "rows 0 16", "permute 4"],
            ["regroup 2 2 1 1", "rows 16 24", "permute 2"],
            ["regroup 2 2 1 1", "rows 24 32"],
        ],
    ),
}


def steps(texts):
    """Return operations spelled as `name number ...`."""
    words = [text.split() for text in texts]
    return tuple(Step(name, tuple(map(float if name.startswith("scale") else int, arguments)))
                 for name, *arguments in words)  # fmt: skip


def piece(array, texts):
    tensor = from_array("x", array)
    for step in steps(texts):
        tensor = perform(tensor, step.name, step.arguments)
    return ConvertedTensor(tensor, steps(texts))


@pytest.mark.parametrize("case", CASES)
def test_inverse_restores_the_original(case):
    array, chains = CASES[case]
    back = undone([piece(array, chain) for chain in chains])
    assert back.shape == array.shape
    assert np.array_equal(back.numpy(), array)


@pytest.mark.parametrize("chain", [["add 1"], ["neg_exp"]])
def test_arithmetic_undone_and_redone_gives_the_same_bits(chain):
    chained = piece(numbers(40, 50), chain)
    again = piece(undone([chained]).numpy(), chain)
    assert np.array_equal(chained.tensor.numpy(), again.tensor.numpy())


def test_removed_rows_come_back_as_zeros():
    array = numbers(6, 3)
    back = undone([piece(array, ["rows 2 6"])]).numpy()
    assert np.array_equal(back[2:], array[2:])
    assert not back[:2].any()


def test_vector_of_one_number_tells_nothing_of_the_tensor():
    array = numbers(6, 3)
    pieces = [piece(array, ["full 2 4"]), piece(array, ["permute 3"])]
    assert pieces[0].tensor.numpy().tolist() == [2] * 4
    assert np.array_equal(undone(pieces).numpy(), array)


def test_operations_that_lose_something_have_no_inverse():
    lost = {
        name for name, operation in OPERATIONS.items() if not operation.undo and not operation.parts
    }
    assert lost == {
        "at",
        "batch_bias",
        "batch_weight",
        "center",
        "divide_rows",
        "full",
        "linear",
        "reshape",
        "resize",
        "silu",
        "sum",
        "unit_columns",
    }
    cases = {step.split()[0] for _, chains in CASES.values() for chain in chains for step in chain}
    assert cases | lost | {"add", "neg_exp", "softplus", "ternary", "floats", "reciprocal"} == set(
        OPERATIONS
    )


def test_refuses_an_operation_without_an_inverse():
    with pytest.raises(CheckpointError, match="reshape cannot be undone"):
        undone([piece(numbers(4, 6), ["reshape 3 8"])])
    with pytest.raises(ShapeError):
        undone([ConvertedTensor(from_array("x", numbers(4, 6)), (Step("rows", (9, 20)),))])
