from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ggufkit.inspection.tensor_statistics import NO_BINS, FineBins, Histogram

NUMBERS = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=50)


def bins_of(numbers):
    return FineBins.of(np.array(numbers, "f8"))


@given(NUMBERS)
@example([5e-324])
@example([5e-324, 3e-323])
def test_counts_agree_with_numpy_on_the_same_edges(numbers):
    histogram = bins_of(numbers).histogram(16)
    assert sum(histogram.counts) == len(numbers)
    assert len(histogram.counts) <= 16
    if any(numbers):
        last = histogram.edges[-1]  # NumPy counts numbers on the last edge too
        is_largest = last == np.finfo("f8").max
        edges = np.append(histogram.edges[:-1], last if is_largest else np.nextafter(last, -np.inf))
        assert np.histogram(numbers, edges)[0].tolist() == list(histogram.counts)


@given(NUMBERS, st.integers(0, 50))
def test_parts_add_up_to_the_whole_wherever_they_are_cut(numbers, place):
    first, second = bins_of(numbers[:place]), bins_of(numbers[place:])
    whole = bins_of(numbers).histogram(64)
    assert (first + second).histogram(64) == whole
    assert (second + first).histogram(64) == whole


def test_edges_are_round_numbers_with_zero_among_them():
    histogram = bins_of([-0.9, 0.1, 0.6]).histogram(4)
    assert histogram == Histogram((-1.0, -0.5, 0.0, 0.5, 1.0), (1, 0, 1, 1))


def test_zeros_alone_are_one_bin_without_width():
    assert bins_of([0.0, -0.0]).histogram(8) == Histogram((0.0, 0.0), (2,))


def test_nothing_has_no_bins():
    assert NO_BINS.histogram(8) == Histogram((), ())


@pytest.mark.parametrize("number", [5e-324, 1.7e308, -1.7e308])
def test_the_extremes_of_doubles_are_counted(number):
    assert bins_of([number]).histogram(2).counts == (1,)


def test_a_negative_number_is_below_zero_however_small_it_is():
    assert bins_of([-5e-324, 1e18]).histogram(2).counts == (1, 1)
