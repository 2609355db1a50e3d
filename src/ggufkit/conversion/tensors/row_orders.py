"""Orders of rows: each function gives the numbers of a tensor's rows in their new order."""

from __future__ import annotations

import numpy as np

from ggufkit.conversion.tensors.row_sources import RowIndex
from ggufkit.errors import ShapeError
from ggufkit.models.model import Tensor


def half_pairs(tensor: Tensor, heads: int, total: int | None = None) -> RowIndex:
    """Return the order of rows that interleaves the two halves of each head.

    If there are `total` heads, those after the first `heads` keep their order.
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
