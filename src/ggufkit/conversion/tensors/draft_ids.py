"""Tables of a draft model's tokens: offsets in checkpoints, ids of the target in GGUF files."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ggufkit.errors import CheckpointError, ShapeError
from ggufkit.format.types import tensor_type
from ggufkit.models.model import Tensor
from ggufkit.models.rows import Made
from ggufkit.system.mapped_file import Bytes

_I64 = tensor_type("I64")


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
