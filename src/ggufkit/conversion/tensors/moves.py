"""Reshapes, reorders and joins lazy tensors without computing on their elements.

Shape and type of the result are known without data. Only the requested rows are read, so a stack
of many experts is never in memory as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ggufkit.conversion.tensors.row_sources import (
    RUN_BYTES,
    Gathered,
    Kept,
    Recut,
    RowIndex,
    Transposed,
)
from ggufkit.errors import ShapeError
from ggufkit.models.model import Tensor
from ggufkit.models.rows import Joined, Source, rows_and_width
from ggufkit.models.sources import FileSource


def reshape(tensor: Tensor, shape: Sequence[int]) -> Tensor:
    """Return the same elements in another shape; one axis may be -1."""
    sizes = filled(tensor.elements, shape)
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


def take(tensor: Tensor, index: RowIndex, shape: tuple[int, ...]) -> Tensor:
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
        parts = ", ".join(f"{t.type} {t.shape}" for t in tensors[:4])
        raise ShapeError(f"{name!r} cannot join tensors of different shape or type: {parts}")
    if len(shape) == 1:
        tensors = [reshape(tensor, (tensor.shape[0], 1)) for tensor in tensors]
        shape = (*shape, 1)
    ends = np.cumsum([tensor.rows for tensor in tensors], dtype=np.int64)
    source = Joined(tuple(tensor.source for tensor in tensors), ends)
    joined = Tensor.over(name, first.type, shape, source)
    return reshape(joined, shape[:-1]) if len(first.shape) == 1 and shape[-1] == 1 else joined


def transpose(tensor: Tensor) -> Tensor:
    """Return the tensor with its last two axes swapped."""
    if len(tensor.shape) < 2:  # noqa: PLR2004
        raise ShapeError(f"{tensor.name!r} of shape {tensor.shape} cannot be transposed")
    *outer, rows, width = tensor.shape
    item_bytes = tensor.type.row_bytes(1)
    run_rows = max(1, RUN_BYTES // max(rows * item_bytes, 1))
    source = Transposed(tensor.source, rows, width, item_bytes)
    kept = Kept(source, math.prod(outer) * width, run_rows)
    return Tensor.over(tensor.name, tensor.type, (*outer, width, rows), kept)


def entry(tensor: Tensor, axis: int, index: int, length: int | None = None) -> Tensor:
    """Return one entry of an axis, which must have `length` if given, without the axis."""
    shape = tensor.shape
    if not 0 <= axis < len(shape) or shape[axis] != (length or shape[axis]):
        raise ShapeError(f"{tensor.name!r} of shape {shape} has no axis {axis} of length {length}")
    length = shape[axis]
    if not 0 <= index < length:
        raise ShapeError(f"{tensor.name!r} of shape {shape} has no entry {index} of axis {axis}")
    outer = math.prod(shape[:axis])
    rows = reshape(tensor, (outer * length, -1))
    chosen = np.arange(outer, dtype=np.int64) * length + index
    return take(rows, chosen, (*shape[:axis], *shape[axis + 1 :]))


def with_axes(tensor: Tensor, *order: int) -> Tensor:
    """Return the tensor with its axes in another order."""
    shape = tensor.shape
    if sorted(order) != [*range(len(shape))]:
        raise ShapeError(f"{tensor.name!r} of shape {shape} has no axes {list(order)}")
    index = np.arange(tensor.elements).reshape(shape).transpose(order)
    items = reshape(tensor, (tensor.elements, 1))
    chosen = np.ascontiguousarray(index).reshape(-1)
    return take(items, chosen, tuple(shape[axis] for axis in order))


def restore_axes(tensor: Tensor, *order: int) -> Tensor:
    """Return the tensor whose axes `with_axes` has put into this order."""
    return with_axes(tensor, *(int(axis) for axis in np.argsort(order)))


def side_by_side(tensor: Tensor, parts: int) -> Tensor:
    """Return a matrix whose equal parts, one below another, stand side by side."""
    rows, width = tensor.shape
    index = np.arange(rows).reshape(parts, -1).T.reshape(-1)
    return take(tensor, index, (rows // parts, parts * width))


def one_below_another(tensor: Tensor, parts: int) -> Tensor:
    """Return the matrix whose equal parts `side_by_side` has put side by side."""
    rows, width = tensor.shape
    index = np.arange(parts * rows).reshape(-1, parts).T.reshape(-1)
    pieces = reshape(tensor, (parts * rows, width // parts))
    return take(pieces, index, (parts * rows, width // parts))


def filled(count: int, sizes: Sequence[int]) -> list[int]:
    """Return sizes with -1 replaced, so that their product is `count`."""
    rest = count // max(math.prod(n for n in sizes if n != -1), 1)
    return [int(n) if n != -1 else rest for n in sizes]


def row_axis(tensor: Tensor) -> int:
    """Return the second-last axis, the only one of a vector."""
    return max(len(tensor.shape) - 2, 0)


def renamed(tensor: Tensor, name: str) -> Tensor:
    """Return the tensor under another name."""
    return replace(tensor, name=name)
