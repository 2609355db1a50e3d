"""Lays out rectangles whose areas are shares of a whole: a squarified treemap."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple


class Rectangle(NamedTuple):
    """A place on the map: the upper left corner, width and height."""

    left: float
    top: float
    width: float
    height: float


def laid_out(sizes: Sequence[float], whole: Rectangle) -> list[Rectangle]:
    """Return a rectangle for each size, in order, that together fill `whole`.

    Sizes come largest first; that keeps the rectangles close to squares.
    """
    total = sum(sizes)
    if not total:
        return [Rectangle(whole.left, whole.top, 0.0, 0.0) for _ in sizes]
    scale = whole.width * whole.height / total
    remaining, rectangles = whole, list[Rectangle]()
    first = 0
    while first < len(sizes):
        side = min(remaining.width, remaining.height)
        count = _row_length(sizes[first:], side, scale)
        areas = [size * scale for size in sizes[first : first + count]]
        rectangles += _row(areas, remaining)
        remaining = _rest(sum(areas), remaining)
        first += count
    return rectangles


def _row_length(sizes: Sequence[float], side: float, scale: float) -> int:
    """Return how many of the sizes stand in the next row: as many as make it squarer."""
    total, worst = 0.0, float("inf")
    largest = sizes[0] * scale
    for count, size in enumerate(sizes):
        total += size * scale
        ratio = _worst_ratio(total, largest, size * scale, side)
        if ratio > worst:
            return count
        worst = ratio
    return len(sizes)


def _worst_ratio(total: float, largest: float, smallest: float, side: float) -> float:
    if not total or not smallest or not side:
        return float("inf")
    return max(side * side * largest / (total * total), total * total / (side * side * smallest))


def _row(areas: Iterable[float], whole: Rectangle) -> Iterator[Rectangle]:
    """Yield the rectangles of one row, along the shorter side."""
    areas = list(areas)
    depth = _depth(sum(areas), whole)
    position = 0.0
    for area in areas:
        length = area / depth if depth else 0.0
        if whole.width >= whole.height:
            yield Rectangle(whole.left, whole.top + position, depth, length)
        else:
            yield Rectangle(whole.left + position, whole.top, length, depth)
        position += length


def _depth(area: float, whole: Rectangle) -> float:
    side = min(whole.width, whole.height)
    return area / side if side else 0.0


def _rest(area: float, whole: Rectangle) -> Rectangle:
    depth = _depth(area, whole)
    if whole.width >= whole.height:
        width = max(whole.width - depth, 0.0)
        return Rectangle(whole.left + depth, whole.top, width, whole.height)
    return Rectangle(whole.left, whole.top + depth, whole.width, max(whole.height - depth, 0.0))
