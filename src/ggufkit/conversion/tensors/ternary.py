"""Rounds the weights of a matrix to -1, 0 or 1 times their mean size, as BitNet does."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from ggufkit.conversion.tensors.arithmetic import AnyFloats, read_floats, working_type
from ggufkit.format.types import TensorType
from ggufkit.models.model import Tensor
from ggufkit.models.rows import Made
from ggufkit.system.mapped_file import Bytes

_LEAST: Final = np.float32(1e-5)  # of the mean: BitNet's own
_BLOCK: Final = 1 << 22  # elements in memory at a time


@dataclass(frozen=True, eq=False)
class Ternary(Made):
    """Rows of a matrix, rounded to three values; those that have three already stay."""

    tensor: Tensor
    type: TensorType

    def read(self, start: int, stop: int) -> Bytes:
        """Read, round and return rows."""
        numbers = read_floats(self.tensor, self.type, start, stop)
        if self._inverse is not None:
            # Twice inverted: so does llama.cpp's converter, and BitNet's own code.
            signs = np.clip(np.rint(numbers.astype(np.float32) * self._inverse), -1, 1)
            numbers = (signs / self._inverse).astype(self.type.dtype)
        return np.ascontiguousarray(numbers).view(np.uint8)

    @cached_property
    def _inverse(self) -> np.float32 | None:
        """One through the mean of all sizes, None if the sizes but zero are all the same."""
        total, least, largest = 0.0, np.inf, 0.0
        step = max(1, _BLOCK // self.tensor.shape[-1])
        for start in range(0, self.tensor.rows, step):
            sizes = np.abs(self._sizes(start, min(start + step, self.tensor.rows)))
            total += float(sizes.sum(dtype=np.float64))
            least = min(least, float(sizes.min(initial=np.inf, where=sizes > 0)))
            largest = max(largest, float(sizes.max(initial=0.0)))
        if least >= largest:
            return None
        inverse: np.float32 = np.float32(1) / max(np.float32(total / self.tensor.elements), _LEAST)
        return inverse

    def _sizes(self, start: int, stop: int) -> AnyFloats:
        return read_floats(self.tensor, self.type, start, stop).astype(np.float32)


def ternary(tensor: Tensor) -> Tensor:
    """Return the matrix with weights of three values."""
    kind = working_type(tensor)
    return Tensor.over(tensor.name, kind, tensor.shape, Ternary(tensor, kind))
