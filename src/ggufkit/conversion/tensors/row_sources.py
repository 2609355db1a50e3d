"""Sources that recut or transpose the rows of other sources."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ggufkit.models.rows import ComputedRows, Source
from ggufkit.models.sources import FileSource
from ggufkit.remote.range_file import ByteRange, RangeFile
from ggufkit.system.mapped_file import Bytes

RowIndex = npt.NDArray[np.int64]
Items = npt.NDArray[Any]

RUN_BYTES: Final = 64 << 20  # of columns transposed together, so that reads are long
CACHED_BYTES: Final = 512 << 20  # limit of all such runs together; many threads need much
CACHED_RUNS: Final = 3  # at least: codes, zeros and scales of one weight are read together
TILE_BYTES: Final = 1 << 16  # of a tile: it stays in a core's cache
TILE_ROWS: Final = 256
READ_BYTES: Final = 4 << 20  # of rows read together for transposing


@dataclass(frozen=True, eq=False)
class Recut(ComputedRows):
    """The bytes of another source, cut into rows of another length."""

    inner: Source
    inner_row_bytes: int
    row_bytes: int

    def read(self, start: int, stop: int) -> Bytes:
        """Read the inner rows that contain the bytes of these rows."""
        begin, end = start * self.row_bytes, stop * self.row_bytes
        first, last = begin // self.inner_row_bytes, -(-end // self.inner_row_bytes)
        data = np.ascontiguousarray(self.inner.read(first, last)).reshape(-1)
        skipped = first * self.inner_row_bytes
        return data[begin - skipped : end - skipped].reshape(stop - start, self.row_bytes)


@dataclass(frozen=True, eq=False)
class Transposed(ComputedRows):
    """The columns of each matrix of another source, as rows.

    Every matrix has `rows` rows of `width` items. Reading few columns costs as much as reading
    many: `CachedRuns` reads many together.
    """

    inner: Source
    rows: int
    width: int
    item_bytes: int

    def read(self, start: int, stop: int) -> Bytes:
        """Read columns, one matrix after the other."""
        out = np.empty((stop - start, self.rows), f"u{self.item_bytes}")
        row = start
        while row < stop:
            matrix, first = divmod(row, self.width)
            last = min(first + stop - row, self.width)
            here = out[row - start :][: last - first]
            self._turn(matrix * self.rows, slice(first, last), here)
            row += last - first
        return out.view(np.uint8)

    def _turn(self, top: int, columns: slice, out: Items) -> None:
        row_bytes = self.width * self.item_bytes
        step = max(1, min(TILE_ROWS, READ_BYTES // row_bytes))
        part = slice(columns.start * self.item_bytes, columns.stop * self.item_bytes)
        for row in range(0, self.rows, step):
            end = min(row + step, self.rows)
            data = _parts_of_rows(self.inner, top + row, top + end, part, row_bytes)
            _turn_tiles(data.view(out.dtype), out[:, row:end])


def _parts_of_rows(source: Source, start: int, stop: int, part: slice, row_bytes: int) -> Bytes:
    if isinstance(source, FileSource) and isinstance(source.file, RangeFile):  # fetch no more
        first, nbytes = source.offset + part.start, part.stop - part.start
        ranges = [ByteRange(first + row * row_bytes, nbytes) for row in range(start, stop)]
        return np.stack(source.file.read_many(ranges))
    return np.ascontiguousarray(source.read(start, stop)[:, part])


def _turn_tiles(rows: Items, out: Items) -> None:
    """Transpose tile by tile; copy each tile first, since long strides collide in caches."""
    step = max(1, TILE_BYTES // (len(rows) * rows.itemsize))
    for column in range(0, rows.shape[1], step):
        out[column : column + step] = np.ascontiguousarray(rows[:, column : column + step]).T


@dataclass
class Run:
    """Rows made together, and how many of them nobody has read yet."""

    rows: Future[Bytes]
    unread: int


# The runs of all sources by their number, the last read last.
RUNS: Final[OrderedDict[tuple[weakref.ref[CachedRuns], int], Run]] = OrderedDict()
_LOCK: Final = threading.Lock()


@dataclass(frozen=True, eq=False)
class CachedRuns(ComputedRows):
    """Rows that are slow to make: made in runs, each cached until it is read whole or displaced."""

    inner: Source
    rows: int
    run_rows: int

    def read(self, start: int, stop: int) -> Bytes:
        """Return rows from one run or several."""
        if start == stop:
            return self.inner.read(start, stop)
        numbers = range(start // self.run_rows, -(-stop // self.run_rows))
        parts = [self._part(number, start, stop) for number in numbers]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _part(self, number: int, start: int, stop: int) -> Bytes:
        """Return the rows from `start` to `stop` that are in a run; threads may wait for it."""
        key = weakref.ref(self), number
        begin = number * self.run_rows
        end = min(begin + self.run_rows, self.rows)
        first, last = max(start, begin), min(stop, end)
        with _LOCK:
            is_new = key not in RUNS
            run = RUNS.setdefault(key, Run(Future(), end - begin))
            RUNS.move_to_end(key)
            run.unread -= last - first
        try:
            if is_new:
                run.rows.set_result(self.inner.read(begin, end))
            rows = run.rows.result()
        except BaseException as error:
            if is_new:
                run.rows.set_exception(error)
            run.unread = 0
            raise
        finally:
            with _LOCK:
                if run.unread <= 0:
                    RUNS.pop(key, None)
                _displace()
        return rows[first - begin : last - begin]


def _displace() -> None:
    """Drop the runs of sources that are gone, and the oldest of the others beyond the limits."""
    for key in [key for key in RUNS if key[0]() is None]:
        del RUNS[key]
    runs = [(key, run.rows) for key, run in RUNS.items() if run.rows.done()]
    sizes = [0 if rows.exception() else rows.result().nbytes for _, rows in runs]
    for index, (key, _) in enumerate(runs[:-CACHED_RUNS]):
        if sum(sizes[index:]) > CACHED_BYTES:
            del RUNS[key]
