"""The knapsack behind target sizes, compared with an exhaustive search."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggufkit.errors import ShapeError
from ggufkit.format.types import tensor_type
from ggufkit.quantization.losses.relative_errors import Option, allocate

TYPE = tensor_type("Q8_0")


def options(*pairs):
    return [Option(TYPE, nbytes, loss) for nbytes, loss in pairs]


def sizes(chosen):
    return {name: option.nbytes for name, option in chosen.items()}


def total(chosen):
    return sum(o.nbytes for o in chosen.values()), sum(o.loss for o in chosen.values())


def best(choices, budget):
    """Return the least loss of all combinations that fit."""
    fitting = (
        combination
        for combination in itertools.product(*choices.values())
        if sum(option.nbytes for option in combination) <= budget
    )
    return min(sum(option.loss for option in combination) for combination in fitting)


def test_bytes_go_to_the_tensors_that_gain_most():
    choices = {
        "sturdy": options((10, 1.0), (20, 0.9)),
        "fragile": options((10, 5.0), (20, 1.0)),
    }
    assert sizes(allocate(choices, 30)) == {"sturdy": 10, "fragile": 20}
    assert sizes(allocate(choices, 40)) == {"sturdy": 20, "fragile": 20}
    assert sizes(allocate(choices, 20)) == {"sturdy": 10, "fragile": 10}


def test_uses_remaining_space():
    choices = {"a": options((10, 8.0), (90, 0.0)), "b": options((10, 2.0), (15, 1.9))}
    assert sizes(allocate(choices, 50)) == {"a": 10, "b": 15}


def test_takes_an_option_off_the_hull_where_it_fits_best():
    choices = {"a": options((10, 8.0), (20, 5.0), (30, 0.0))}
    assert sizes(allocate(choices, 25)) == {"a": 20}


def test_never_takes_a_larger_option_that_is_worse():
    choices = {"a": options((10, 1.0), (20, 2.0))}
    assert sizes(allocate(choices, 100)) == {"a": 10}


def test_error_says_by_how_much_the_budget_is_too_small():
    with pytest.raises(ShapeError, match="20 bytes too large"):
        allocate({"a": options((40, 1.0)), "b": options((1000, 0.0))}, 1020)


cases = st.dictionaries(
    st.sampled_from("abcde"),
    st.lists(
        st.builds(Option, st.just(TYPE), st.integers(1, 50), st.floats(0, 10)),
        min_size=1,
        max_size=4,
    ),
    min_size=1,
    max_size=5,
)


@given(cases, st.integers(0, 100))
def test_choice_fits_and_is_at_most_one_step_worse_than_the_optimum(choices, spare):
    smallest = sum(min(option.nbytes for option in options) for options in choices.values())
    budget = smallest + spare
    chosen = allocate(choices, budget)
    nbytes, loss = total(chosen)
    assert nbytes <= budget
    assert all(chosen[name] in options for name, options in choices.items())
    step = max(
        max(option.loss for option in options) - min(option.loss for option in options)
        for options in choices.values()
    )
    assert loss <= best(choices, budget) + step + 1e-9


@given(cases)
def test_enough_space_gives_each_tensor_its_best_type(choices):
    chosen = allocate(choices, 10_000)
    assert all(
        chosen[name].loss == min(option.loss for option in options)
        for name, options in choices.items()
    )
