"""Tables of integers: ids of tokens and of experts, and the offsets that draft models have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ggufkit.errors import CheckpointError, ShapeError
from ggufkit.format.types import TensorType, tensor_type
from ggufkit.models.model import Tensor
from ggufkit.models.rows import Made
from ggufkit.system.mapped_file import Bytes

_I64 = tensor_type("I64")
_I32 = tensor_type("I32")


@dataclass(frozen=True, eq=False)
class Shifted(Made):
    """A vector of integers, each plus or minus its position."""

    tensor: Tensor
    sign: int
    limit: int  # of the ids, 0 for none
    dtype: str

    def read(self, start: int, stop: int) -> Bytes:
        """Read the vector and add the positions; CheckpointError for ids that cannot be."""
        data = np.ascontiguousarray(self.tensor.source.read(start, stop))
        numbers = data.view(self.dtype).astype(np.int64).reshape(-1)
        made = numbers + self.sign * np.arange(len(numbers), dtype=np.int64)
        is_known = not len(made) or (made.min() >= 0 and made.max() < self.limit)
        if self.limit and (not is_known or len(np.unique(made)) != len(made)):
            raise CheckpointError(
                f"{self.tensor.name!r} does not give {len(made)} different tokens below "
                f"{self.limit}, the target's vocabulary",
                remedy="Give the target that the draft model was trained for",
            )
        return made.view(np.uint8).reshape(1, -1)


def target_ids(tensor: Tensor, vocabulary: int) -> Tensor:
    """Return the ids in a target's vocabulary of which a checkpoint has the offsets."""
    return _shifted(tensor, 1, vocabulary)


def draft_offsets(tensor: Tensor, _vocabulary: int) -> Tensor:
    """Return the offsets of ids, as checkpoints have them."""
    return _shifted(tensor, -1, 0)


def _shifted(tensor: Tensor, sign: int, limit: int) -> Tensor:
    dtype = tensor.type.dtype
    if len(tensor.shape) != 1 or dtype is None or np.dtype(dtype).kind not in "iu":
        raise ShapeError(f"{tensor.name!r} is {tensor.type} of shape {tensor.shape}, not a vector "
                         "of integers")  # fmt: skip
    return Tensor.over(tensor.name, _I64, tensor.shape, Shifted(tensor, sign, limit, dtype))


@dataclass(frozen=True, eq=False)
class Resized(Made):
    """Integers in another size."""

    tensor: Tensor
    before: np.dtype[Any]
    after: np.dtype[Any]

    def read(self, start: int, stop: int) -> Bytes:
        """Read rows; CheckpointError for a number that the size does not hold."""
        data = np.ascontiguousarray(self.tensor.source.read(start, stop))
        numbers = data.view(self.before)
        made = numbers.astype(self.after)
        if not np.array_equal(made, numbers):
            raise CheckpointError(f"{self.tensor.name!r} has a number beyond {self.after}")
        return made.view(np.uint8)


def as_int32(tensor: Tensor) -> Tensor:
    """Return the integers as int32."""
    return _resized(tensor, _I32)


def as_int64(tensor: Tensor) -> Tensor:
    """Return the integers as int64."""
    return _resized(tensor, _I64)


def _resized(tensor: Tensor, kind: TensorType) -> Tensor:
    if tensor.type not in (_I32, _I64):
        raise ShapeError(f"{tensor.name!r} is {tensor.type}, not a table of integers")
    source = Resized(tensor, np.dtype(tensor.type.dtype), np.dtype(kind.dtype))
    return Tensor.over(tensor.name, kind, tensor.shape, source)
