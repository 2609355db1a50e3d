"""Sources of rows of packed blocks: the protocol, slices of a source, and several joined.

The bytes of every tensor come from a source; each operation on tensors is a source over others.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, NoReturn, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from ggufkit.errors import TruncatedError
from ggufkit.format.encoding import ByteOrder
from ggufkit.remote.range_file import RangeFile
from ggufkit.system.mapped_file import Bytes, MappedFile

AnyFile: TypeAlias = MappedFile | RangeFile


class OpenedFile(Protocol):
    """A file with tensors, in the state in which it was opened."""

    path: Path

    @property
    def nbytes(self) -> int:
        """The size of the whole file."""

    @property
    def status(self) -> os.stat_result:
        """The file's status when it was opened."""

    def view(self, offset: int, nbytes: int) -> Bytes:
        """Return bytes without copying them."""

    def read(self, offset: int, nbytes: int) -> Bytes:
        """Return a copy of bytes; FormatError if the file has changed since it was opened."""

    def copy(self, offset: int, nbytes: int, target: int, target_offset: int) -> None:
        """Copy bytes to the descriptor `target`, in the kernel if possible; errors as `read`."""

    def same_file(self, path: Path) -> bool:
        """Whether `path` is this file."""

    @property
    def closed(self) -> bool:
        """Whether it was closed."""

    def close(self) -> None:
        """Release the file."""


class Span(NamedTuple):
    """A range of bytes in a file that the engine can copy in the kernel."""

    file: OpenedFile
    offset: int
    nbytes: int


class Source(Protocol):
    """Where a tensor's bytes come from: rows of packed blocks, read when asked for.

    `read(start, stop)` gives rows `start` to `stop` as uint8 of shape (rows, bytes per row), in
    `byte_order`. `span` is their range in a file, None if they are computed.
    """

    @property
    def byte_order(self) -> ByteOrder:
        """Byte order of the rows that `read` returns."""

    @property
    def span(self) -> Span | None:
        """The range of bytes in a file, None if they are computed or in memory."""

    def read(self, start: int, stop: int) -> Bytes:
        """Return rows `start` to `stop`."""


class Made:
    """Base of sources that compute rows: little-endian, and not in a file."""

    __slots__ = ()

    @property
    def byte_order(self) -> ByteOrder:
        """Always little."""
        return "little"

    @property
    def span(self) -> Span | None:
        """None: computed."""
        return None


@dataclass(frozen=True)
class Unplaced(Made):
    """A tensor of a file that ends in its header: where its data would begin is unknown."""

    path: str

    def read(self, start: int, stop: int) -> NoReturn:
        """Raise TruncatedError."""
        raise TruncatedError(
            f"the file ends in its header, before the data of rows {start} to {stop}",
            remedy="Download the rest of the file",
            path=self.path,
        )


@dataclass(frozen=True)
class _SourceSlice:
    """A slice of another source, in its byte order."""

    inner: Source
    start: int
    stop: int

    @property
    def byte_order(self) -> ByteOrder:
        """The byte order of the inner source."""
        return self.inner.byte_order


@dataclass(frozen=True)
class Rows(_SourceSlice):
    """Rows `start` to `stop` of another source."""

    row_bytes: int

    @property
    def span(self) -> Span | None:
        """Their range in the file of the inner source."""
        span = self.inner.span
        nbytes = (self.stop - self.start) * self.row_bytes
        return span and Span(span.file, span.offset + self.start * self.row_bytes, nbytes)

    def read(self, start: int, stop: int) -> Bytes:
        """Read rows of the inner source."""
        return self.inner.read(self.start + start, self.start + stop)


class Columns(_SourceSlice):
    """Bytes `start` to `stop` of the only row of another source."""

    @property
    def span(self) -> Span | None:
        """Their range in the file of the inner source."""
        span = self.inner.span
        return span and Span(span.file, span.offset + self.start, self.stop - self.start)

    def read(self, start: int, stop: int) -> Bytes:
        """Read the row, and cut it."""
        return self.inner.read(start, stop)[:, self.start : self.stop]


@dataclass(frozen=True, eq=False)
class PickedRows:
    """Rows of another source by their numbers, in any order."""

    inner: Source
    index: npt.NDArray[np.int64]
    row_bytes: int

    @property
    def byte_order(self) -> ByteOrder:
        """The byte order of the inner source."""
        return self.inner.byte_order

    @property
    def span(self) -> Span | None:
        """None: they do not lie together."""
        return None

    def read(self, start: int, stop: int) -> Bytes:
        """Copy the rows out of the memory map; else read each run of neighbours."""
        wanted = self.index[start:stop]
        span = self.inner.span
        if span and isinstance(span.file, MappedFile):
            rows = span.file.view(span.offset, span.nbytes).reshape(-1, self.row_bytes)[wanted]
            span.file.read(span.offset, 0)  # raises if the file was cut or changed meanwhile
            return rows
        if not len(wanted):
            return np.empty((0, self.row_bytes), np.uint8)
        runs = np.split(wanted, np.flatnonzero(np.diff(wanted) != 1) + 1)
        return np.concatenate([self.inner.read(int(r[0]), int(r[-1]) + 1) for r in runs])


@dataclass(frozen=True, eq=False)
class PickedColumns:
    """Items of the only row of another source by their numbers, in any order."""

    inner: Source
    index: npt.NDArray[np.int64]
    item_bytes: int

    @property
    def byte_order(self) -> ByteOrder:
        """The byte order of the inner source."""
        return self.inner.byte_order

    @property
    def span(self) -> Span | None:
        """None: they do not lie together."""
        return None

    def read(self, start: int, stop: int) -> Bytes:
        """Read the row, and pick the items."""
        row = np.ascontiguousarray(self.inner.read(start, stop)).reshape(-1, self.item_bytes)
        return row[self.index].reshape(stop - start, -1)


@dataclass(frozen=True, eq=False)
class Joined(Made):
    """Several sources in a row; `ends` holds the row number at the end of each."""

    parts: tuple[Source, ...]
    ends: npt.NDArray[np.int64]

    def read(self, start: int, stop: int) -> Bytes:
        """Read from each part that holds some of the rows."""
        first = int(np.searchsorted(self.ends, start, "right"))
        pieces: list[Bytes] = []
        at = start
        while at < stop:
            begin = int(self.ends[first - 1]) if first else 0
            end = min(stop, int(self.ends[first]))
            pieces.append(self.parts[first].read(at - begin, end - begin))
            at, first = end, first + 1
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def rows_and_width(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the number of rows along the last axis, and its width; (1, 1) for a scalar."""
    return (math.prod(shape[:-1]), shape[-1]) if shape else (1, 1)
