"""Operations on lazy tensors: shape and type are known at once, rows are made when read.

Each function takes a tensor and gives a tensor. What only moves rows reads only those rows, so
that a stack of many experts is never in memory whole.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ggufkit.conversion.tensors.row_sources import (
    RUN_BYTES,
    Gathered,
    Index,
    Kept,
    Recut,
    Transposed,
)
from ggufkit.errors import MISFORMED, CheckpointError, GGUFError, ShapeError
from ggufkit.format.types import TensorType, tensor_type
from ggufkit.model.model import Tensor
from ggufkit.model.rows import Joined, Made, Source, rows_and_width
from ggufkit.model.sources import FileSource
from ggufkit.quants import codec
from ggufkit.system.mapped_file import Bytes

Floats = npt.NDArray[Any]


# Rows moved.


def reshape(tensor: Tensor, shape: Sequence[int]) -> Tensor:
    """Return the same elements in another shape; one axis may be -1."""
    sizes = _filled(tensor.elements, shape)
    if int(np.prod(sizes, dtype=np.int64)) != tensor.elements or len(set(shape) & {-1}) > 1:
        raise ShapeError(f"{tensor.name!r} of shape {tensor.shape} has no shape {tuple(shape)}")
    row_bytes = tensor.type.row_bytes(rows_and_width(tuple(sizes))[1])
    source = tensor.source
    if row_bytes != tensor.row_bytes:
        source = _recut(source, tensor.row_bytes, row_bytes)
    return Tensor.over(tensor.name, tensor.type, tuple(sizes), source)


def _recut(source: Source, inner_row_bytes: int, row_bytes: int) -> Source:
    if isinstance(source, FileSource):
        return source._replace(row_bytes=row_bytes)
    return Recut(source, inner_row_bytes, row_bytes)


def take(tensor: Tensor, index: Index, shape: tuple[int, ...]) -> Tensor:
    """Return entries `index` along the first axis, in the final `shape`."""
    if tensor.elements == 0 or not tensor.shape:
        raise ShapeError(f"{tensor.name!r} of shape {tensor.shape} has no rows to take")
    entries = reshape(tensor, (tensor.shape[0], -1))
    source = Gathered(entries.source, index, entries.row_bytes)
    chosen = (len(index), entries.shape[1])
    return reshape(Tensor.over(tensor.name, tensor.type, chosen, source), shape)


def stack(name: str, tensors: Sequence[Tensor]) -> Tensor:
    """Return tensors of one shape along a new first axis."""
    return _joined(name, tensors, (len(tensors), *tensors[0].shape))


def concat(name: str, tensors: Sequence[Tensor]) -> Tensor:
    """Return tensors one after the other along their first axis."""
    if any(len(tensor.shape) != len(tensors[0].shape) for tensor in tensors):
        raise ShapeError(f"{name!r} cannot join tensors of different axes")
    length = sum(tensor.shape[0] for tensor in tensors)
    return _joined(name, tensors, (length, *tensors[0].shape[1:]))


def _joined(name: str, tensors: Sequence[Tensor], shape: tuple[int, ...]) -> Tensor:
    first = tensors[0]
    tails = {(t.shape[1:] if len(shape) == len(t.shape) else t.shape, t.type) for t in tensors}
    if len(tails) > 1:
        told = ", ".join(f"{t.type} {t.shape}" for t in tensors[:4])
        raise ShapeError(f"{name!r} cannot join tensors of different shape or type: {told}")
    if len(shape) == 1:
        tensors = [reshape(tensor, (tensor.shape[0], 1)) for tensor in tensors]
        shape = (*shape, 1)
    ends = np.cumsum([tensor.rows for tensor in tensors], dtype=np.int64)
    source = Joined(tuple(tensor.source for tensor in tensors), ends)
    joined = Tensor.over(name, first.type, shape, source)
    return reshape(joined, shape[:-1]) if len(first.shape) == 1 and shape[-1] == 1 else joined


def transpose(tensor: Tensor) -> Tensor:
    """Return the last two axes exchanged."""
    if len(tensor.shape) < 2:  # noqa: PLR2004
        raise ShapeError(f"{tensor.name!r} of shape {tensor.shape} cannot be transposed")
    *outer, rows, width = tensor.shape
    item_bytes = tensor.type.row_bytes(1)
    run_rows = max(1, RUN_BYTES // max(rows * item_bytes, 1))
    source = Transposed(tensor.source, rows, width, item_bytes)
    kept = Kept(source, math.prod(outer) * width, run_rows)
    return Tensor.over(tensor.name, tensor.type, (*outer, width, rows), kept)


def permute(tensor: Tensor, heads: int) -> Tensor:
    """Return rows of each head as llama.cpp's rotary embedding pairs them, not in two halves."""
    return take(tensor, half_pairs(tensor, heads), tensor.shape)


def half_pairs(tensor: Tensor, heads: int) -> Index:
    """Return the order of rows in which those of a head's two halves alternate."""
    rows = tensor.shape[0]
    if heads < 1 or rows % (2 * heads):
        raise ShapeError(f"{tensor.name!r} has {rows} rows, which are no pairs of {heads} heads")
    index = np.arange(rows).reshape(heads, 2, rows // heads // 2)
    return np.ascontiguousarray(index.swapaxes(1, 2)).reshape(-1)


def unpermute(tensor: Tensor, heads: int) -> Tensor:
    """Undo `permute`."""
    return take(tensor, np.argsort(half_pairs(tensor, heads)), tensor.shape)


def rows(tensor: Tensor, start: int, stop: int) -> Tensor:
    """Return rows `start` to `stop` of the first axis, all there are if there are fewer."""
    return tensor[start:stop]


def split(tensor: Tensor, index: int, parts: int) -> Tensor:
    """Return part `index` (from 0) of `parts` equal ones along the second-last axis."""
    length = tensor.shape[row_axis(tensor)]
    if parts < 1 or length % parts:
        raise ShapeError(f"{tensor.name!r} has {length} rows, which are not {parts} equal parts")
    size = length // parts
    return part(tensor, index * size, (index + 1) * size)


def row_axis(tensor: Tensor) -> int:
    """Return the second-last axis, the only one of a vector."""
    return max(len(tensor.shape) - 2, 0)


def part(tensor: Tensor, start: int, stop: int) -> Tensor:
    """Return entries `start` to `stop` of the second-last axis."""
    axis = row_axis(tensor)
    length = tensor.shape[axis]
    if not 0 <= start < stop <= length:
        raise ShapeError(f"{tensor.name!r} has {length} rows, none from {start} to {stop}")
    if axis == 0:
        return tensor[start:stop]
    return _picked(tensor, axis, slice(start, stop))


def every(tensor: Tensor, start: int, step: int) -> Tensor:
    """Return every `step`-th entry of the second-last axis from `start` on."""
    axis = row_axis(tensor)
    length = tensor.shape[axis]
    if not 0 <= start < step <= length or length % step:
        raise ShapeError(f"{tensor.name!r} has {length} rows, of which none is one in {step}")
    return _picked(tensor, axis, slice(start, None, step))


def _picked(tensor: Tensor, axis: int, chosen: slice) -> Tensor:
    length = tensor.shape[axis]
    outer = int(np.prod(tensor.shape[:axis]))
    index = np.arange(outer * length).reshape(outer, length)[:, chosen]
    matrix = reshape(tensor, (outer * length, -1))
    shape = (*tensor.shape[:axis], index.shape[1], *tensor.shape[axis + 1 :])
    return take(matrix, np.ascontiguousarray(index).reshape(-1), shape)


def regroup(tensor: Tensor, heads: int, kinds: int) -> Tensor:
    """Return rows kind by kind that came head by head: q k v q k v … becomes q q … k k … v v …."""
    return take(tensor, regroup_order(tensor, heads, kinds), tensor.shape)


def regroup_order(tensor: Tensor, heads: int, kinds: int) -> Index:
    """Return which row comes where when rows of each head become rows of each kind."""
    length = tensor.shape[0]
    if heads < 1 or kinds < 1 or length % (heads * kinds):
        raise ShapeError(f"{tensor.name!r} has {length} rows, no {kinds} kinds for {heads} heads")
    order: Index = np.arange(length).reshape(heads, kinds, -1).swapaxes(0, 1).reshape(-1)
    return order


def regroup_shared(tensor: Tensor, heads: int, kv_heads: int) -> Tensor:
    """Return q of all groups, then k, then v, where each group holds its q heads, a k and a v."""
    return take(tensor, regroup_shared_order(tensor, heads, kv_heads), tensor.shape)


def regroup_shared_order(tensor: Tensor, heads: int, kv_heads: int) -> Index:
    """Return which row comes where when rows of each group become rows of each kind."""
    length, per_group = tensor.shape[0], heads // max(kv_heads, 1) + 2
    if kv_heads < 1 or heads % kv_heads or length % (kv_heads * per_group):
        raise ShapeError(
            f"{tensor.name!r} has {length} rows, no {kv_heads} groups of {heads} heads"
        )
    index = np.arange(length).reshape(kv_heads, per_group, -1)
    parts = (index[:, :-2], index[:, -2:-1], index[:, -1:])
    return np.concatenate([part.reshape(-1) for part in parts])


def squeeze(tensor: Tensor, axis: int) -> Tensor:
    """Return the tensor without the axis, which must be of length 1."""
    if not 0 <= axis < len(tensor.shape) or tensor.shape[axis] != 1:
        raise ShapeError(f"{tensor.name!r} of shape {tensor.shape} has no axis {axis} of length 1")
    return reshape(tensor, (*tensor.shape[:axis], *tensor.shape[axis + 1 :]))


def unsqueeze(tensor: Tensor, axis: int) -> Tensor:
    """Return the tensor with one more axis, of length 1."""
    if not 0 <= axis <= len(tensor.shape):
        raise ShapeError(f"{tensor.name!r} of shape {tensor.shape} has no place for axis {axis}")
    return reshape(tensor, (*tensor.shape[:axis], 1, *tensor.shape[axis:]))


def unflatten(tensor: Tensor, *sizes: int) -> Tensor:
    """Return the first axis cut into several of these sizes, of which one may be -1."""
    return reshape(tensor, (*_filled(math.prod(tensor.shape[:1]), sizes), *tensor.shape[1:]))


def _filled(count: int, sizes: Sequence[int]) -> list[int]:
    """Return sizes with -1 replaced by what is left of `count`."""
    rest = count // max(math.prod(n for n in sizes if n != -1), 1)
    return [int(n) if n != -1 else rest for n in sizes]


# Elements computed.


@dataclass(frozen=True, eq=False)
class Computed(Made):
    """Rows of another tensor after arithmetic in its own precision."""

    tensor: Tensor
    type: TensorType
    apply: Callable[[Floats], Floats]

    def read(self, start: int, stop: int) -> Bytes:
        """Read, compute and return rows."""
        numbers = self.apply(read_floats(self.tensor, self.type, start, stop))
        return np.ascontiguousarray(numbers, self.type.dtype).view(np.uint8)


def read_floats(tensor: Tensor, type: TensorType, start: int, stop: int) -> Floats:
    """Return rows as float16 or float32, which `type` says."""
    data = np.ascontiguousarray(tensor.source.read(start, stop))
    if tensor.type.dtype is not None:
        return data.view(tensor.type.dtype).astype(type.dtype)
    return codec.dequantize(data, tensor.type, threads=1)


def working_type(tensor: Tensor) -> TensorType:
    """Return the type that llama.cpp's converter computes in: F16 for F16, else F32."""
    return tensor_type("F16" if tensor.type.name == "F16" else "F32")


def compute(tensor: Tensor, apply: Callable[[Floats], Floats]) -> Tensor:
    """Return the tensor with `apply` done to each of its elements."""
    kind = working_type(tensor)
    return Tensor.over(tensor.name, kind, tensor.shape, Computed(tensor, kind, apply))


def add(tensor: Tensor, number: float) -> Tensor:
    """Return the elements plus a number."""
    return compute(tensor, functools.partial(_plus, number))


def scale(tensor: Tensor, factor: float) -> Tensor:
    """Return the elements times a number."""
    return compute(tensor, functools.partial(_times, factor))


def neg_exp(tensor: Tensor) -> Tensor:
    """Return minus the exponential of the elements."""
    return compute(tensor, _neg_exp)


# By name, for what is done may travel to another process and go on in the next.


def _plus(number: float, array: Floats) -> Floats:
    made: Floats = array + array.dtype.type(number)
    return made


def _times(factor: float, array: Floats) -> Floats:
    made: Floats = array * array.dtype.type(factor)
    return made


def _neg_exp(array: Floats) -> Floats:
    return -np.exp(array.astype(np.float64)).astype(array.dtype)


def same(array: Floats) -> Floats:
    """Return the elements, which `compute` makes floats."""
    return array


OPERATIONS: Final[dict[str, Callable[..., Tensor]]] = {
    "add": add,
    "every": every,
    "neg_exp": neg_exp,
    "part": part,
    "permute": permute,
    "regroup": regroup,
    "regroup_shared": regroup_shared,
    "reshape": lambda tensor, *shape: reshape(tensor, shape),
    "rows": rows,
    "scale": scale,
    "split": split,
    "squeeze": squeeze,
    "transpose": transpose,
    "unflatten": unflatten,
    "unpermute": unpermute,
    "unsqueeze": unsqueeze,
}


def perform(
    tensor: Tensor,
    name: str,
    arguments: Sequence[Any],
    operations: Mapping[str, Callable[..., Tensor]] | None = None,
) -> Tensor:
    """Return the tensor after the operation of that name, or of that name in another table."""
    if any(not isinstance(n, int | float) or isinstance(n, bool) for n in arguments):
        raise CheckpointError(f"{tensor.name!r}: {name} needs numbers, not {list(arguments)}")
    try:
        return (operations or OPERATIONS)[name](tensor, *arguments)
    except GGUFError:
        raise
    except MISFORMED as error:
        told = f"{tensor.name!r} of shape {tensor.shape}: {name} of {list(arguments)}"
        verb = "undone" if operations else "done"
        raise CheckpointError(f"{told} cannot be {verb} ({error})") from error


def renamed(tensor: Tensor, name: str) -> Tensor:
    """Return the tensor under another name."""
    return replace(tensor, name=name)
