"""Cut arrays into pieces that fit a processor's cache, and work on them in several threads."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ggufkit.system.cpu import worker_count
from ggufkit.system.threads import pool_of, require_wanted, result_of, submit

Numbers = np.ndarray[Any, np.dtype[Any]]  # of any type
Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]

TASK: Final = 1 << 18  # elements per task: worth a thread's start, and its floats fit a cache
TASKS_PER_THREAD: Final = 4  # fewer are not worth a thread
ALIGNMENT: Final = 64  # bytes: streaming stores need whole cache lines


@dataclass(frozen=True)
class ArrayPiece:
    """Rows of a matrix or a part of one row: where they begin, and the weights of their columns."""

    row: int
    column: int
    view: Numbers
    weights: Floats | None = None


def cut(
    array: Numbers, unit: int, step: int, weights: Floats | None = None
) -> Iterator[ArrayPiece]:
    """Yield `array` in order, as views of about `step` numbers along the last axis.

    No piece divides a `unit` of numbers. `weights` has shape (columns,), or (experts, columns) of
    an array of three axes; with weights, pieces are whole rows, as some types require.
    """
    if weights is None:
        yield from _pieces(array, unit, step)
    elif weights.ndim == 1:
        for piece in _pieces(array, unit, max(step, array.shape[-1])):
            yield replace(piece, weights=weights)
    else:
        for index, (expert, own) in enumerate(zip(array, weights, strict=True)):
            for piece in cut(expert, unit, step, own):
                yield replace(piece, row=index * len(expert) + piece.row)


def run_all(
    work: Callable[[ArrayPiece], None], pieces: list[ArrayPiece], threads: int | None
) -> None:
    """Call `work` on every piece, in several threads if there are enough pieces."""
    wanted = worker_count(threads)
    if threads is None:
        wanted = min(wanted, len(pieces) // TASKS_PER_THREAD)
    if min(wanted, len(pieces)) <= 1:
        for piece in pieces:
            require_wanted()
            work(piece)
        return
    todo = deque(pieces)

    def drain() -> None:
        while todo:
            try:
                piece = todo.popleft()
            except IndexError:  # another thread took the last piece
                return
            require_wanted()
            work(piece)

    with pool_of(min(wanted, len(pieces))) as pool:
        try:
            for done in [submit(pool, drain) for _ in range(min(wanted, len(pieces)))]:
                result_of(done)
        finally:
            todo.clear()  # after an error or Ctrl-C, stop all threads


def aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Numbers:
    """Return an uninitialized array that begins on a cache line."""
    nbytes = math.prod(shape) * dtype.itemsize
    memory = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + nbytes].view(dtype).reshape(shape)


def as_rows(array: Numbers) -> Numbers:
    """Return a contiguous array as a matrix, even an empty one."""
    return array.reshape(math.prod(array.shape[:-1]), array.shape[-1])


def _pieces(array: Numbers, unit: int, step: int) -> Iterator[ArrayPiece]:
    row = 0
    for matrix in _matrices(array) if array.size else ():
        rows, width = matrix.shape
        many = max(1, step // width)
        wide = width if width <= step else max(step // unit, 1) * unit
        for at in range(0, rows, many):
            for column in range(0, width, wide):
                view = matrix[at : at + many, column : column + wide]
                yield ArrayPiece(row + at, column, view)
        row += rows


def _matrices(array: Numbers) -> Iterator[Numbers]:
    """Yield `array` as matrices of its rows, in order and without a copy."""
    if array.ndim == 1:
        yield array[np.newaxis]
    elif array.ndim == 2 or _leading_axes_merge(array):  # noqa: PLR2004 (a matrix)
        yield array.reshape(-1, array.shape[-1])
    else:
        for part in array:
            yield from _matrices(part)


def _leading_axes_merge(array: Numbers) -> bool:
    """Whether one stride steps through all rows."""
    return all(
        array.strides[axis] == array.strides[axis + 1] * array.shape[axis + 1]
        for axis in range(array.ndim - 2)
    )
