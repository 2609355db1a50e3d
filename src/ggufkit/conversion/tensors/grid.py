"""Resizes a square grid of positions, bit for bit as PyTorch does with AVX2 and AVX-512."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ggufkit.conversion.tensors.arithmetic import read_floats
from ggufkit.conversion.tensors.moves import reshape, take
from ggufkit.errors import ShapeError
from ggufkit.format.types import TensorType, tensor_type
from ggufkit.models.model import Tensor
from ggufkit.models.rows import Made
from ggufkit.system.mapped_file import Bytes

Weights = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Weighted(Made):
    """Sums of the rows of several tensors, each row times a weight of its own."""

    tensors: Sequence[Tensor]
    weights: Sequence[Weights]
    type: TensorType

    def read(self, start: int, stop: int) -> Bytes:
        """Read, multiply and add rows; each product is added before it is rounded."""
        sums: npt.NDArray[Any] = np.zeros(1, np.float32)
        for tensor, weights in zip(self.tensors, self.weights, strict=True):
            numbers = read_floats(tensor, self.type, start, stop).astype(np.float64)
            sums = (numbers * weights[start:stop, None] + sums).astype(np.float32)
        return np.ascontiguousarray(sums).view(np.uint8)


def resized(tensor: Tensor, side: int) -> Tensor:
    """Return a square of positions with another side; the corners keep their values."""
    *outer, positions, _ = tensor.shape if len(tensor.shape) > 1 else (0, 0)
    before = math.isqrt(positions)
    if before * before != positions or not positions or math.prod(outer) != 1 or side < 1:
        raise ShapeError(f"{tensor.name!r} of shape {tensor.shape} is not a square of positions")
    if side == before:
        return tensor
    kind = tensor_type("F32")
    rows = reshape(tensor, tensor.shape[-2:])
    low, high, near, far = _between(before, side)
    # PyTorch adds the four corners in this order.
    corners = ((high, low, far, near), (high, high, far, far),
               (low, high, near, far), (low, low, near, near))  # fmt: skip
    tensors = [
        take(rows, (top[:, None] * before + left).reshape(-1), (side * side, rows.shape[1]))
        for top, left, _, _ in corners
    ]
    weights = [(above[:, None] * beside).reshape(-1) for _, _, above, beside in corners]
    source = Weighted(tensors, weights, kind)
    made = Tensor.over(tensor.name, kind, (side * side, rows.shape[1]), source)
    return reshape(made, (*outer, side * side, rows.shape[1]))


def _between(
    before: int, side: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Weights, Weights]:
    """Return the old positions around each new one along an axis, and their weights."""
    step = np.float32(before - 1) / np.float32(max(side - 1, 1))
    places = step * np.arange(side, dtype=np.float32)
    low = np.minimum(places.astype(np.int64), before - 1)
    far = np.clip(places - low.astype(np.float32), 0, 1).astype(np.float32)
    return low, np.minimum(low + 1, before - 1), np.float32(1) - far, far
