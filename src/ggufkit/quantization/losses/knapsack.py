"""Choose one option per tensor so that all fit a budget with the least total loss.

Pure: a multiple-choice knapsack, solved greedily along convex hulls. `quantization/target.py` uses
it to choose the type of each tensor of a model.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ggufkit.errors import ShapeError
from ggufkit.format.types import TensorType


@dataclass(frozen=True)
class Option:
    """A type that a tensor may get, its size in bytes as that type, and the loss."""

    type: TensorType
    nbytes: int
    loss: float


def allocate(options: Mapping[str, Sequence[Option]], budget: int) -> dict[str, Option]:
    """Return one option per tensor: all fit in `budget` bytes, with the least total loss.

    Each tensor starts with its smallest option and moves up the lower convex hull of size and loss;
    the step with the best saving per byte comes first. The remaining bytes go to the best single
    changes. If two options have the same size, only the better one counts. Raises ShapeError if
    even the smallest options do not fit.
    """
    hulls = {name: _hull(each) for name, each in options.items()}
    chosen = {name: hull[0] for name, hull in hulls.items()}
    room = budget - sum(option.nbytes for option in chosen.values())
    if room < 0:
        raise ShapeError(
            f"the smallest possible result is {-room:,} bytes too large",
            remedy="Allow more bytes or smaller types",
        )
    steps = [(_slope(*hull[:2]), name, 1) for name, hull in hulls.items() if len(hull) > 1]
    heapq.heapify(steps)
    while steps:
        _, name, place = heapq.heappop(steps)
        hull = hulls[name]
        growth = hull[place].nbytes - hull[place - 1].nbytes
        if growth > room:
            continue
        chosen[name], room = hull[place], room - growth
        if place + 1 < len(hull):
            heapq.heappush(steps, (_slope(hull[place], hull[place + 1]), name, place + 1))
    return _filled(chosen, options, room)


def _slope(lower: Option, upper: Option) -> float:
    """Return the change of the loss per further byte, a negative number."""
    return (upper.loss - lower.loss) / (upper.nbytes - lower.nbytes)


def _hull(options: Sequence[Option]) -> list[Option]:
    """Return the options on the lower convex hull, the smallest first."""
    hull: list[Option] = []
    for option in sorted(options, key=lambda each: (each.nbytes, each.loss)):
        if hull and option.loss >= hull[-1].loss:
            continue
        while len(hull) > 1 and _slope(hull[-2], hull[-1]) >= _slope(hull[-1], option):
            hull.pop()
        hull.append(option)
    return hull


def _filled(
    chosen: dict[str, Option], options: Mapping[str, Sequence[Option]], room: int
) -> dict[str, Option]:
    """Spend the remaining bytes on single changes; the largest saving comes first."""
    savings = sorted(
        (
            (option.loss - chosen[name].loss, name, option)
            for name, each in options.items()
            for option in each
            if option.loss < chosen[name].loss
        ),
        key=lambda saving: saving[:2],
    )
    filled = dict(chosen)
    for _, name, option in savings:
        growth = option.nbytes - filled[name].nbytes
        if option.loss < filled[name].loss and growth <= room:
            filled[name], room = option, room - growth
    return filled
