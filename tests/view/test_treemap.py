"""A treemap fills its place with areas that are the sizes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggufkit.view.treemap import Rectangle, laid_out

WHOLE = Rectangle(0.0, 0.0, 160.0, 90.0)


@given(st.lists(st.floats(1, 1e9), min_size=1, max_size=60))
def test_areas_are_shares_of_the_whole(sizes):
    sizes = sorted(sizes, reverse=True)
    placed = laid_out(sizes, WHOLE)
    for size, rectangle in zip(sizes, placed, strict=True):
        share = rectangle.width * rectangle.height / (WHOLE.width * WHOLE.height)
        assert share == pytest.approx(size / sum(sizes), rel=1e-6, abs=1e-9)


@given(st.lists(st.floats(1, 1e6), min_size=1, max_size=40))
def test_rectangles_stay_inside_and_do_not_overlap(sizes):
    placed = laid_out(sorted(sizes, reverse=True), WHOLE)
    for rectangle in placed:
        assert -1e-6 <= rectangle.left <= rectangle.left + rectangle.width <= WHOLE.width + 1e-6
        assert -1e-6 <= rectangle.top <= rectangle.top + rectangle.height <= WHOLE.height + 1e-6
    for i, a in enumerate(placed):
        for b in placed[i + 1 :]:
            wide = min(a.left + a.width, b.left + b.width) - max(a.left, b.left)
            high = min(a.top + a.height, b.top + b.height) - max(a.top, b.top)
            assert wide <= 1e-6 or high <= 1e-6


def test_equal_sizes_are_nearly_squares():
    for rectangle in laid_out([1.0] * 36, WHOLE):
        assert 0.4 < rectangle.width / rectangle.height < 2.5


def test_sizes_of_zero_take_no_place():
    assert all(rectangle.width == 0 for rectangle in laid_out([0.0, 0.0], WHOLE))
    assert laid_out([], WHOLE) == []
