"""Reshapes, reorders and joins lazy tensors without computing on their elements.

Shape and type of the result are known without data. Only the requested rows are read, so a stack
of many experts is never in memory as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from ggufkit.conversion.tensors.row_sources import (
    RUN_BYTES,
    CachedRuns,
    Recut,
    RowIndex,
    Transposed,
)
from ggufkit.errors import ShapeError
from ggufkit.models.model import Tensor
from ggufkit.models.rows import Joined, PickedRows, rows_and_width
from ggufkit.models.sources import FileSource, retyped

MAX_GROWTH: Final = 16  # times the elements of the tensor that another is made from
MAX_SMALL: Final = 1 << 24  # elements that any tensor may have


def reshape(tensor: Tensor, shape: Sequence[int]) -> Tensor:
    """Return the same elements in another shape; one axis may be -1."""
    sizes = filled(tensor.elements, shape)
    if int(np.prod(sizes, dtype=np.int64)) != tensor.elements or len(set(shape) & {-1}) > 1:
        raise ShapeError(f"{tensor.name!r} of shape {tensor.shape} has no shape {tuple(shape)}")
    width = rows_and_width(tuple(sizes))[1]
    if width % tensor.type.block_size:
        tensor = _unpacked(tensor)
    row_bytes = tensor.type.row_bytes(width)
    source = tensor.source
    if row_bytes != tensor.row_bytes:
        source = (
            source._replace(row_bytes=row_bytes)
            if isinstance(source, FileSource)
            else Recut(source, tensor.row_bytes, row_bytes)
        )
    return Tensor.over(tensor.name, tensor.type, tuple(sizes), source)


def take(tensor: Tensor, index: RowIndex, shape: tuple[int, ...]) -> Tensor:
    """Return entries `index` along the first axis, in the final `shape`."""
    if tensor.elements == 0 or not tensor.shape:
        raise ShapeError(f"{tensor.name!r} of shape {tensor.shape} has no rows to take")
    entries = reshape(tensor, (tensor.shape[0], -1))
    source = PickedRows(entries.source, index, entries.row_bytes)
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
    tensor = _unpacked(tensor)
    *outer, rows, width = tensor.shape
    item_bytes = tensor.type.row_bytes(1)
    run_rows = max(1, RUN_BYTES // max(rows * item_bytes, 1))
    source = Transposed(tensor.source, rows, width, item_bytes)
    cached = CachedRuns(source, math.prod(outer) * width, run_rows)
    return Tensor.over(tensor.name, tensor.type, (*outer, width, rows), cached)


def _unpacked(tensor: Tensor) -> Tensor:
    """Return a tensor whose single elements can be moved: decoded if elements share blocks."""
    return retyped(tensor, "F32") if tensor.type.is_quantized else tensor


def entry(tensor: Tensor, axis: int, index: int, length: int | None = None) -> Tensor:
    """Return one entry of an axis, which must have `length` if given, without the axis."""
    shape = tensor.shape
    if not 0 <= axis < len(shape) or shape[axis] != (length or shape[axis]):
        raise ShapeError(f"{tensor.name!r} of shape {shape} has no axis {axis} of length {length}")
    length = shape[axis]
    if not 0 <= index < length:
        raise ShapeError(f"{tensor.name!r} of shape {shape} has no entry {index} of axis {axis}")
    row = picked(tensor, axis, slice(index, index + 1))
    return reshape(row, (*shape[:axis], *shape[axis + 1 :]))


def picked(tensor: Tensor, axis: int, chosen: slice) -> Tensor:
    """Return entries of an axis."""
    outer, length = math.prod(tensor.shape[:axis]), tensor.shape[axis]
    index = np.arange(outer * length).reshape(outer, length)[:, chosen]
    shape = (*tensor.shape[:axis], index.shape[1], *tensor.shape[axis + 1 :])
    return take(reshape(tensor, (outer * length, -1)), index.reshape(-1), shape)


def with_axes(tensor: Tensor, *order: int) -> Tensor:
    """Return the tensor with its axes in another order."""
    shape = tensor.shape
    if sorted(order) != [*range(len(shape))]:
        raise ShapeError(f"{tensor.name!r} of shape {shape} has no axes {list(order)}")
    index = np.arange(tensor.elements).reshape(shape).transpose(order)
    items = reshape(tensor, (tensor.elements, 1))
    chosen = np.ascontiguousarray(index).reshape(-1)
    return take(items, chosen, tuple(shape[axis] for axis in order))


def side_by_side(tensor: Tensor, parts: int) -> Tensor:
    """Return a matrix whose equal parts, which were stacked, are side by side."""
    rows, width = tensor.shape
    index = np.arange(rows).reshape(parts, -1).T.reshape(-1)
    return take(tensor, index, (rows // parts, parts * width))


def one_below_another(tensor: Tensor, parts: int) -> Tensor:
    """Return the matrix whose equal parts `side_by_side` has put side by side."""
    rows, width = tensor.shape
    index = np.arange(parts * rows).reshape(-1, parts).T.reshape(-1)
    pieces = reshape(tensor, (parts * rows, width // parts))
    return take(pieces, index, (parts * rows, width // parts))


def require_size(tensor: Tensor, elements: int) -> None:
    """Raise ShapeError if a number of the configuration makes a tensor much larger."""
    if elements > max(MAX_GROWTH * tensor.elements, MAX_SMALL):
        raise ShapeError(
            f"{tensor.name!r} of shape {tensor.shape} would have {elements:,} elements",
            remedy="Check the sizes in config.json",
        )


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


# Orders of rows: the numbers of a tensor's rows in their new order.
def half_pairs(tensor: Tensor, heads: int, total: int | None = None) -> RowIndex:
    """Return the order of rows that interleaves the two halves of each head.

    If there are `total` heads, only the first `heads` change their order.
    """
    rows, total = tensor.shape[0], total or heads
    if not 0 < heads <= total or rows % (2 * total):
        raise ShapeError(f"{tensor.name!r} has {rows} rows, not pairs for {total} heads")
    index = np.arange(rows).reshape(total, 2, -1)
    pairs = index[:heads].swapaxes(1, 2).reshape(-1)
    return np.concatenate([pairs, index[heads:].reshape(-1)])


def kind_by_kind(tensor: Tensor, groups: int, *shares: int) -> RowIndex:
    """Return the order that turns q k v q k v … (group by group) into q q … k k … v v ….

    The kinds have these shares of a group's rows: 2 1 1 if two heads of q share a k and a v.
    """
    rows, whole = tensor.shape[0], sum(shares)
    if groups < 1 or min(shares, default=0) < 1 or rows % (groups * whole):
        raise ShapeError(f"{tensor.name!r} has {rows} rows, not {list(shares)} for {groups} groups")
    index = np.arange(rows).reshape(groups, whole, -1)
    parts = np.split(index, np.cumsum(shares)[:-1], axis=1)
    return np.concatenate([part.reshape(-1) for part in parts])


def equal_kinds(tensor: Tensor, groups: int, kinds: int, start: int = 0) -> RowIndex:
    """Return the same order for kinds of equal size; rows before `start` keep their place."""
    length = tensor.shape[0] - start
    if start < 0 or length < 0 or groups < 1 or kinds < 1 or length % (groups * kinds):
        raise ShapeError(f"{tensor.name!r} has {length} rows, no {kinds} kinds for {groups} groups")
    order = start + np.arange(length).reshape(groups, kinds, -1).swapaxes(0, 1).reshape(-1)
    return np.concatenate([np.arange(start), order])


def kinds_of_heads(tensor: Tensor, heads: int, groups: int, kinds: int, length: int) -> RowIndex:
    """Return the same order for the first rows, so many, of each head."""
    rows = tensor.shape[0]
    if heads < 1 or rows % heads or not 0 <= length <= rows // heads:
        raise ShapeError(f"{tensor.name!r} has {rows} rows, not {length} for each of {heads} heads")
    first = equal_kinds(tensor[:length], groups, kinds) if length else np.arange(0)
    order = np.concatenate([first, np.arange(length, rows // heads)])
    return np.concatenate([head * len(order) + order for head in range(heads)])


def two_exchanged(tensor: Tensor, parts: int, one: int, other: int) -> RowIndex:
    """Return the order that exchanges two of so many equal parts."""
    rows = tensor.shape[0]
    if parts < 1 or rows % parts or not 0 <= one < parts or not 0 <= other < parts:
        raise ShapeError(f"{tensor.name!r} has {rows} rows, not parts {one} and {other} of {parts}")
    index = np.arange(rows).reshape(parts, -1)
    index[[one, other]] = index[[other, one]]
    return index.reshape(-1)
