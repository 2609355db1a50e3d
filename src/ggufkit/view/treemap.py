"""Lays out rectangles whose areas are shares of a whole: a squarified treemap."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
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
    areas = [size * scale for size in sizes]
    (left, top, width, height), rectangles = whole, list[Rectangle]()
    while len(rectangles) < len(areas):
        side = min(width, height)
        row = _row(areas[len(rectangles) :], side)
        depth = sum(row) / side if side else 0.0
        lengths = [area / depth if depth else 0.0 for area in row]
        steps = zip((0.0, *itertools.accumulate(lengths)), lengths, strict=False)
        if width >= height:
            rectangles += [Rectangle(left, top + start, depth, length) for start, length in steps]
            left, width = left + depth, max(width - depth, 0.0)
        else:
            rectangles += [Rectangle(left + start, top, length, depth) for start, length in steps]
            top, height = top + depth, max(height - depth, 0.0)
    return rectangles


def _row(areas: list[float], side: float) -> list[float]:
    """Return the first areas, as many as make a row along a side squarer."""
    total, worst = 0.0, math.inf
    for count, area in enumerate(areas):
        total += area
        squares = total * total, side * side * area
        ratio = (
            max(side * side * areas[0] / squares[0], squares[0] / squares[1])
            if all(squares)
            else math.inf
        )
        if ratio > worst:
            return areas[:count]
        worst = ratio
    return areas
