"""Tables of integers: ids of tokens and of experts, and the offsets that draft models have."""

from __future__ import annotations

import functools
from typing import Final

import numpy as np
import numpy.typing as npt

from ggufkit.conversion.tensors.arithmetic import Computed
from ggufkit.errors import CheckpointError, ShapeError
from ggufkit.format.types import TensorType, tensor_type
from ggufkit.models.model import Tensor
from ggufkit.models.rows import Rewritten
from ggufkit.system.mapped_file import Bytes

I64: Final = tensor_type("I64")
I32: Final = tensor_type("I32")


def shifted(sign: int, tensor: Tensor, limit: int) -> Tensor:
    """Return ids below a limit from a checkpoint's offsets, with the sign -1 offsets from ids."""
    dtype = tensor.type.dtype
    if len(tensor.shape) != 1 or dtype is None or np.dtype(dtype).kind not in "iu":
        raise ShapeError(f"{tensor.name!r} is {tensor.type} of shape {tensor.shape}, not a vector "
                         "of integers")  # fmt: skip
    apply = functools.partial(_with_positions, tensor.name, sign, limit)
    return Tensor.over(tensor.name, I64, tensor.shape, Computed(tensor, I64, apply))


def _with_positions(
    name: str, sign: int, limit: int, numbers: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Add or subtract positions; CheckpointError for ids that cannot be below a limit, if any."""
    ids = numbers + sign * np.arange(numbers.size)
    is_known = not ids.size or (ids.min() >= 0 and ids.max() < limit)
    if limit and (not is_known or len(np.unique(ids)) != ids.size):
        raise CheckpointError(
            f"{name!r} does not give {ids.size} different tokens below "
            f"{limit}, the target's vocabulary",
            remedy="Give the target that the draft model was trained for",
        )
    return ids


def resized_integers(kind: TensorType, tensor: Tensor) -> Tensor:
    """Return integers in another type; reading raises CheckpointError for one that is too large."""
    if tensor.type not in (I32, I64):
        raise ShapeError(f"{tensor.name!r} is {tensor.type}, not a table of integers")
    resize = functools.partial(_resized, tensor.name, tensor.type, kind)
    return Tensor.over(tensor.name, kind, tensor.shape, Rewritten(resize, (tensor.source,)))


def _resized(name: str, before: TensorType, after: TensorType, rows: Bytes) -> Bytes:
    numbers = np.ascontiguousarray(rows).view(np.dtype(before.dtype))
    resized = numbers.astype(np.dtype(after.dtype))
    if not np.array_equal(resized, numbers):
        raise CheckpointError(f"{name!r} has a number beyond {resized.dtype}")
    return resized.view(np.uint8)
