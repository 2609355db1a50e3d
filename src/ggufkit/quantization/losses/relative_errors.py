"""The relative error of tensors as other types, measured on samples of their rows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ggufkit.format.types import TensorType
from ggufkit.models.model import Tensor
from ggufkit.models.rows import rows_and_width
from ggufkit.models.sources import in_order
from ggufkit.quantization.losses.knapsack import Option
from ggufkit.quants import codec
from ggufkit.quants.packing import NEEDS_IMATRIX
from ggufkit.quants.parallel import Floats

SAMPLE: Final = 1 << 16  # elements of a tensor that are measured: hundreds of blocks
MIN_ROWS: Final = 16  # of a sample; fewer if MAX_SAMPLE is less
MAX_SAMPLE: Final = 1 << 22


def measure(
    tensor: Tensor,
    kinds: Iterable[TensorType],
    weights: Floats | None = None,
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
    numbers = _sampled(rows, width)
    sample = _decoded(tensor, numbers)
    columns = None if weights is None else weights.reshape(-1, width)
    owners = numbers * (1 if columns is None else len(columns)) // rows
    return [
        Option(
            kind,
            rows * kind.row_bytes(width),
            _relative_error(sample, kind, columns, owners),
        )
        for kind in possible
    ]


def _sampled(rows: int, width: int) -> npt.NDArray[np.int64]:
    """Return the indices of the rows to measure, evenly spaced."""
    least = max(1, min(MIN_ROWS, MAX_SAMPLE // max(width, 1)))
    count = min(rows, max(least, math.ceil(SAMPLE / max(width, 1))))
    return (2 * np.arange(count, dtype=np.int64) + 1) * rows // (2 * count)


def _decoded(tensor: Tensor, numbers: npt.NDArray[np.int64]) -> Floats:
    source = in_order(tensor, "little")
    packed = np.concatenate([source.read(number, number + 1) for number in numbers.tolist()])
    return codec.dequantize(packed, tensor.type, threads=1)


def _relative_error(
    sample: Floats, kind: TensorType, columns: Floats | None, owners: npt.NDArray[np.int64]
) -> float:
    """Return the weighted squared error of quantizing, relative to the weighted squares."""
    error = energy = 0.0
    for owner in np.unique(owners):
        rows = sample[owners == owner]
        weights = None if columns is None else columns[owner]
        packed = codec.quantize(rows, kind, imatrix=weights, threads=1)
        lost = rows - codec.dequantize(packed, kind, threads=1)
        error += weighted_squares(lost, weights)
        energy += weighted_squares(rows, weights)
    return error / energy if energy else 0.0


def weighted_squares(rows: Floats, weights: Floats | None) -> float:
    """Return the sum of squares of rows, their columns weighted."""
    squares: npt.NDArray[Any] = np.square(rows, dtype=np.float64).sum(axis=0)
    return float(squares.sum() if weights is None else squares @ weights.astype(np.float64))
