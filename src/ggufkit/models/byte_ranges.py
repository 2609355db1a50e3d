"""A tensor's packed bytes in order, tile by tile: little endian, in bounded memory.

Rows follow each other and consist of whole blocks, so a tensor can be cut between any two blocks,
however long its rows are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from ggufkit.format.byte_order import to_byte_order
from ggufkit.format.types import TensorType
from ggufkit.models.model import Tensor
from ggufkit.models.rows import AnyFile, rows_and_width
from ggufkit.models.sources import in_order, separable
from ggufkit.quants import codec
from ggufkit.quants.parallel import Doubles, Floats
from ggufkit.remote.range_file import RangeFile
from ggufkit.system.cpu import worker_count
from ggufkit.system.mapped_file import Bytes
from ggufkit.system.threads import Progress

REMOTE_THREADS: Final = 8  # that read from servers: several round trips at the same time


def byte_ranges(tensor: Tensor, nbytes: int) -> Iterator[tuple[int, int]]:
    """Yield begin and end of tiles of about `nbytes` bytes, in order, each of whole blocks."""
    block = max(tensor.type.block_bytes, 1)
    step = max(nbytes // block, 1) * block
    for start in range(0, tensor.nbytes, step):
        yield start, min(start + step, tensor.nbytes)


def little_endian_bytes(tensor: Tensor, start: int, stop: int) -> Bytes:
    """Return the packed bytes from `start` to `stop`, between blocks, as little endian has them.

    Bytes of an opaque type, whose fields are unknown, are not swapped.
    """
    span = tensor.source.span
    if span:
        data = span.file.read(span.offset + start, stop - start)
        return to_byte_order(data, tensor.type, tensor.source.byte_order, "little")
    first = start // tensor.row_bytes
    last = -(-stop // tensor.row_bytes)
    rows = in_order(tensor, "little").read(first, last).reshape(-1)
    begin = first * tensor.row_bytes
    return rows[start - begin : stop - begin]


def decoded_rows(tensor: Tensor, start: int, stop: int) -> Floats:
    """Return rows `start` to `stop` of the last axis as float32: (rows, width), in this thread."""
    tensor = separable(tensor)
    packed = np.ascontiguousarray(in_order(tensor, "little").read(start, stop))
    rows: Floats = codec.dequantize(packed, tensor.type, threads=1)
    return rows.reshape(stop - start, rows_and_width(tensor.shape)[1])


def decoded(data: Bytes, type: TensorType) -> Doubles:
    """Return the elements of packed little-endian bytes, decoded in this thread."""
    if type.dtype:
        return np.ascontiguousarray(data).view(f"<{type.dtype}").astype(np.float64)
    return codec.dequantize(data, type, threads=1).astype(np.float64)


def reading_threads(files: Iterable[AnyFile], threads: int | None) -> int:
    """Return the number of threads to read files with: as given, else as many as is useful.

    Reading from a server is mostly waiting, so more threads than cores are useful for it.
    """
    count = worker_count(threads)
    if threads is None and any(isinstance(file, RangeFile) for file in files):
        return max(count, REMOTE_THREADS)
    return count


class Tally:
    """Counts bytes done and expected, and reports them to a callback."""

    def __init__(self, progress: Progress | None) -> None:
        self._done, self._total, self._progress = 0, 0, progress

    def expect(self, nbytes: int) -> None:
        """Expect more bytes."""
        self._total += nbytes

    def add(self, nbytes: int) -> None:
        """Count bytes that are done."""
        self._done += nbytes
        if self._progress:
            self._progress(self._done, self._total)
