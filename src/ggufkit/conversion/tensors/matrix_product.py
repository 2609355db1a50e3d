"""Multiplies the rows of a lazy tensor by a matrix, for layers that converters fold into it.

The sums are made in float64 and rounded once. PyTorch adds in float32, in an order that depends on
the processor: its last places differ from machine to machine, and from ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ggufkit.conversion.tensors.arithmetic import AnyFloats, read_floats, working_type
from ggufkit.errors import ShapeError
from ggufkit.format.types import TensorType
from ggufkit.models.model import Tensor
from ggufkit.models.rows import Made
from ggufkit.system.mapped_file import Bytes

_MATRIX = 2  # axes


@dataclass(frozen=True, eq=False)
class Product(Made):
    """Rows of another tensor times a matrix, plus a vector if there is one."""

    tensor: Tensor
    type: TensorType
    matrix: Tensor
    vector: Tensor | None

    @cached_property
    def _numbers(self) -> tuple[AnyFloats, AnyFloats | float]:
        """The matrix and the vector, read once."""
        vector = 0.0 if self.vector is None else _doubles(self.vector)[0]
        return _doubles(self.matrix).T, vector

    def read(self, start: int, stop: int) -> Bytes:
        """Read and multiply rows."""
        matrix, vector = self._numbers
        rows = read_floats(self.tensor, self.type, start, stop).reshape(stop - start, -1)
        with np.errstate(invalid="ignore", over="ignore"):  # a file may hold anything
            made = rows.astype(np.float64) @ matrix + vector
            return np.ascontiguousarray(made.astype(self.type.dtype)).view(np.uint8)


def _doubles(tensor: Tensor) -> AnyFloats:
    numbers = read_floats(tensor, working_type(tensor), 0, tensor.rows)
    made: AnyFloats = numbers.reshape(tensor.rows, -1).astype(np.float64)
    return made


def multiplied_by(tensor: Tensor, matrix: Tensor, vector: Tensor | None = None) -> Tensor:
    """Return each row of a tensor after a linear layer: a matrix, and a vector that is added."""
    if len(matrix.shape) != _MATRIX or matrix.shape[1:] != tensor.shape[-1:]:
        raise ShapeError(
            f"{tensor.name!r} of shape {tensor.shape} cannot be multiplied by {matrix.name!r} of "
            f"shape {matrix.shape}"
        )
    if vector is not None and vector.shape != matrix.shape[:1]:
        raise ShapeError(
            f"{vector.name!r} of shape {vector.shape} cannot be added to products with "
            f"{matrix.name!r} of shape {matrix.shape}"
        )
    kind = working_type(tensor)
    shape = (*tensor.shape[:-1], matrix.shape[0])
    return Tensor.over(tensor.name, kind, shape, Product(tensor, kind, matrix, vector))
