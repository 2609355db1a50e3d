"""Intervals of differences: Student's quantiles, and when "better" is said."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ggufkit.evaluation.scores import FIELDS, Scores
from ggufkit.evaluation.statistics import Comparison, comparisons, quantile, ranked_groups

CHUNKS, POSITIONS = 12, 5


def scores(divergence):
    values = np.zeros((CHUNKS, POSITIONS, len(FIELDS)))
    values[..., FIELDS.index("divergence")] = divergence
    return Scores(values)


@pytest.mark.parametrize(
    ("probability", "freedom", "expected"),
    [  # of printed tables
        (0.975, 1, 12.7062),
        (0.975, 2, 4.30265),
        (0.975, 3, 3.18245),
        (0.975, 10, 2.22814),
        (0.995, 30, 2.75),
        (0.95, 5, 2.01505),
    ],
)
def test_quantiles_match_tables(probability, freedom, expected):
    assert quantile(probability, freedom) == pytest.approx(expected, abs=1e-5)


def test_an_interval_contains_the_truth_as_often_as_it_says():
    random = np.random.default_rng(5)
    chunks = random.normal(1, 0.2, (400, CHUNKS, 1))
    results = [comparisons({"a": scores(x), "b": scores(0)}, with_base=True)[0] for x in chunks]
    hits = sum(result.low <= 1 <= result.high for result in results)
    assert 0.92 <= hits / len(results) <= 0.98


def test_paired_differences_show_what_separate_errors_hide():
    shared = np.random.default_rng(6).normal(5, 3, (CHUNKS, POSITIONS))
    (result,) = comparisons({"a": scores(shared + 0.1), "b": scores(shared)}, with_base=True)
    assert result.better == "b"
    assert result.difference == pytest.approx(0.1)


def test_equal_models_are_not_called_better():
    random = np.random.default_rng(7)
    pair = {name: scores(random.normal(1, 1, (CHUNKS, POSITIONS))) for name in "ab"}
    (result,) = comparisons(pair, with_base=True)
    assert result.better is None
    (same,) = comparisons({"a": scores(1), "b": scores(1)}, with_base=True)
    assert (same.better, same.low, same.high) == (None, 0, 0)


def test_intervals_of_more_pairs_are_wider():
    random = np.random.default_rng(8)
    three = {name: scores(random.normal(1, 1, (CHUNKS, POSITIONS))) for name in "abc"}
    two = {name: three[name] for name in "ab"}
    (alone,) = comparisons(two, with_base=True)
    among = comparisons(three, with_base=True)[0]
    assert (among.first, among.second) == (alone.first, alone.second)
    assert among.high - among.low > alone.high - alone.low


def test_two_chunks_are_too_few():
    pair = {name: Scores(scores(1).values[:2]) for name in "ab"}
    (result,) = comparisons(pair, with_base=True)
    assert math.isinf(result.high)
    assert result.better is None


def test_models_of_a_group_are_not_shown_to_differ():
    def compared(first, second, better):
        return Comparison(first, second, "kld", -1.0, -2.0, -0.5 if better else 0.5, better)

    pairs = [
        *(compared("a", other, "a") for other in "cd"),
        *(compared("b", other, "b") for other in "d"),
        *(compared(*pair, None) for pair in ("ab", "bc", "cd")),
    ]
    assert ranked_groups("abcd", pairs) == (("a", "b"), ("b", "c"), ("c", "d"))
    apart = [compared(first, second, first) for first, second in ("ab", "ac", "bc")]
    assert ranked_groups("abc", apart) == (("a",), ("b",), ("c",))
    assert ranked_groups("abc", []) == (("a", "b", "c"),)
