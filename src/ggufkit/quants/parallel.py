"""Cut arrays into pieces that fit a processor's cache, and work on them in several threads."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ggufkit.system.cancellation import check_cancelled
from ggufkit.system.cpu import worker_count
from ggufkit.system.threads import pool_of, result_of

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
    workers = min(worker_count(threads), len(pieces))
    if threads is None:
        workers = min(workers, len(pieces) // TASKS_PER_THREAD)
    todo = iter(pieces)  # each thread takes the next one

    def drain() -> None:
        for piece in todo:
            check_cancelled()
            work(piece)

    if workers <= 1:
        drain()
        return
    with pool_of(workers) as pool:
        for task in [pool.submit(drain) for _ in range(workers)]:
            result_of(task)


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
        for start in range(0, rows, many):
            for column in range(0, width, wide):
                view = matrix[start : start + many, column : column + wide]
                yield ArrayPiece(row + start, column, view)
        row += rows


def _matrices(array: Numbers) -> Iterator[Numbers]:
    if array.ndim == 1:
        yield array[np.newaxis]
    elif array.ndim == 2 or all(  # noqa: PLR2004 (a matrix, or one stride for all rows)
        array.strides[axis] == array.strides[axis + 1] * array.shape[axis + 1]
        for axis in range(array.ndim - 2)
    ):
        yield array.reshape(-1, array.shape[-1])
    else:
        for part in array:
            yield from _matrices(part)
