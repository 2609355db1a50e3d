"""The relative errors of tensors as other types, and the types of the least total loss."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ggufkit.errors import ShapeError
from ggufkit.format.types import TensorType
from ggufkit.models.byte_ranges import decoded_rows
from ggufkit.models.model import Tensor
from ggufkit.models.rows import rows_and_width
from ggufkit.quants import codec
from ggufkit.quants.kernels import NEEDS_IMATRIX
from ggufkit.quants.parallel import Floats


@dataclass(frozen=True)
class Option:
    """A type that a tensor may get, its size in bytes as that type, and the loss."""

    type: TensorType
    nbytes: int
    loss: float


def allocate(options: Mapping[str, Sequence[Option]], budget: int) -> dict[str, Option]:
    """Return one option per tensor: all fit in `budget` bytes, with the least total loss.

    A multiple-choice knapsack, solved greedily along convex hulls: each tensor starts with its
    smallest option and moves up the lower convex hull of size and loss;
    the step with the best saving per byte comes first. The remaining bytes go to the best single
    changes. If two options have the same size, only the better one counts. Raises ShapeError if
    even the smallest options do not fit.
    """
    hulls = {name: _hull(choices) for name, choices in options.items()}
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
    return (upper.loss - lower.loss) / (upper.nbytes - lower.nbytes)


def _hull(options: Sequence[Option]) -> list[Option]:
    hull: list[Option] = []
    for option in sorted(options, key=lambda choice: (choice.nbytes, choice.loss)):
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
            for name, choices in options.items()
            for option in choices
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


SAMPLE: Final = 1 << 16  # elements of a tensor that are measured: hundreds of blocks
MIN_ROWS: Final = 16  # of a sample; fewer if MAX_SAMPLE is less
MAX_SAMPLE: Final = 1 << 22


def measure(
    tensor: Tensor, kinds: Iterable[TensorType], weights: Floats | None = None
) -> list[Option]:
    """Return the options of a tensor: each of `kinds` that fits its rows, with its loss.

    The loss is the squared error of a sample of rows relative to their squares, both weighted by
    `weights` of shape (width,) or (experts, width). The sample is deterministic. Types that need
    weights are left out without weights.
    """
    rows, width = rows_and_width(tensor.shape)
    possible = [
        kind
        for kind in kinds
        if width % kind.block_size == 0 and (weights is not None or kind.name not in NEEDS_IMATRIX)
    ]
    if not rows * width:
        return [Option(kind, 0, 0.0) for kind in possible]
    parts = list(_sample(tensor, weights))
    return [
        Option(kind, rows * kind.row_bytes(width), _relative_error(parts, partial(_rounded, kind)))
        for kind in possible
    ]


def relative_error(tensor: Tensor, values: Floats, weights: Floats | None = None) -> float:
    """Return the loss, as `measure` defines it, of a tensor whose elements become `values`."""
    if not tensor.elements:
        return 0.0
    matrix = values.reshape(rows_and_width(tensor.shape))
    return _relative_error(_sample(tensor, weights), lambda part: matrix[part.numbers])


class _RowSample(NamedTuple):
    """Sampled rows that share the weights of their columns, and the numbers of the rows."""

    numbers: npt.NDArray[np.int64]
    rows: Floats
    weights: Floats | None


def _sample(tensor: Tensor, weights: Floats | None) -> Iterator[_RowSample]:
    rows, width = rows_and_width(tensor.shape)
    least = max(1, min(MIN_ROWS, MAX_SAMPLE // width))
    count = min(rows, max(least, math.ceil(SAMPLE / width)))
    numbers = (2 * np.arange(count, dtype=np.int64) + 1) * rows // (2 * count)
    sample = np.concatenate([decoded_rows(tensor, n, n + 1) for n in numbers.tolist()])
    columns = None if weights is None else weights.reshape(-1, width)
    owners = numbers * (1 if columns is None else len(columns)) // rows
    for owner in np.unique(owners):
        is_own = owners == owner
        yield _RowSample(
            numbers[is_own], sample[is_own], None if columns is None else columns[owner]
        )


def _rounded(kind: TensorType, part: _RowSample) -> Floats:
    packed = codec.quantize(part.rows, kind, imatrix=part.weights, threads=1)
    return codec.dequantize(packed, kind, threads=1)


def _relative_error(parts: Iterable[_RowSample], changed: Callable[[_RowSample], Floats]) -> float:
    error = energy = 0.0
    for part in parts:
        error += weighted_squares(part.rows - changed(part), part.weights)
        energy += weighted_squares(part.rows, part.weights)
    return error / energy if energy else 0.0


def weighted_squares(rows: Floats, weights: Floats | None) -> float:
    """Return the sum of squares of rows, their columns weighted."""
    squares: npt.NDArray[Any] = np.square(rows, dtype=np.float64).sum(axis=0)
    return float(squares.sum() if weights is None else squares @ weights.astype(np.float64))
