"""Sources of rows of packed blocks: the protocol, slices of a source, and several joined.

The bytes of every tensor come from a source; each operation on tensors is a source over others.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple, NoReturn, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from ggufkit.errors import TruncatedError
from ggufkit.format.encoding import ByteOrder
from ggufkit.remote.range_file import RangeFile
from ggufkit.system.mapped_file import Bytes, MappedFile

NEAR: Final = 64  # gaps of up to so many rows are cheaper to read than to skip
AnyFile: TypeAlias = MappedFile | RangeFile  # with tensors, in the state when it was opened


@contextlib.contextmanager
def closing_on_error(*closers: Callable[[], object]) -> Iterator[None]:
    """Call all `closers` if the block raises, such as `close` of files that it hands over."""
    try:
        yield
    except BaseException:
        for close in closers:
            close()
        raise


class Span(NamedTuple):
    """A range of bytes in a file that the engine can copy in the kernel."""

    file: AnyFile
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


class ComputedRows:
    """Base of sources that compute rows: little-endian, and not in a file."""

    __slots__ = ()
    byte_order: ByteOrder = "little"
    span: Span | None = None


@dataclass(frozen=True, eq=False)
class Rewritten(ComputedRows):
    """Rows whose bytes `rewrite` makes from the same rows of other sources."""

    rewrite: Callable[..., Bytes]
    sources: Sequence[Source]

    def read(self, start: int, stop: int) -> Bytes:
        """Read and rewrite rows."""
        rows = self.rewrite(*(source.read(start, stop) for source in self.sources))
        return rows.reshape(stop - start, -1)


@dataclass(frozen=True)
class Unplaced(ComputedRows):
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
class _Selected:
    """A part of another source, in its byte order."""

    inner: Source

    @property
    def byte_order(self) -> ByteOrder:
        """The byte order of the inner source."""
        return self.inner.byte_order


@dataclass(frozen=True)
class _SourceSlice(_Selected):
    start: int
    stop: int


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
class _Picked(_Selected):
    """Rows or items of another source by their numbers, in any order: they do not lie together."""

    index: npt.NDArray[np.int64]
    item_bytes: int
    span: ClassVar[None] = None


class PickedRows(_Picked):
    """Rows of another source."""

    def read(self, start: int, stop: int) -> Bytes:
        """Read the rows; rows close to each other in one read."""
        rows = self.index[start:stop]
        out = np.empty((len(rows), self.item_bytes), np.uint8)
        order = np.argsort(rows, kind="stable")
        breaks = np.flatnonzero(np.diff(rows[order]) > NEAR) + 1
        for places in np.split(order, breaks) if len(rows) else ():
            first, last = int(rows[places[0]]), int(rows[places[-1]])
            out[places] = self.inner.read(first, last + 1)[rows[places] - first]
        return out


class PickedColumns(_Picked):
    """Items of the only row of another source."""

    def read(self, start: int, stop: int) -> Bytes:
        """Read the row, and pick the items."""
        row = np.ascontiguousarray(self.inner.read(start, stop)).reshape(-1, self.item_bytes)
        return row[self.index].reshape(stop - start, -1)


@dataclass(frozen=True, eq=False)
class Joined(ComputedRows):
    """Several sources in a row; `ends` holds the row number at the end of each."""

    parts: tuple[Source, ...]
    ends: npt.NDArray[np.int64]

    def read(self, start: int, stop: int) -> Bytes:
        """Read from each part that holds some of the rows."""
        first = int(np.searchsorted(self.ends, start, "right"))
        pieces: list[Bytes] = []
        position = start
        while position < stop:
            begin = int(self.ends[first - 1]) if first else 0
            end = min(stop, int(self.ends[first]))
            pieces.append(self.parts[first].read(position - begin, end - begin))
            position, first = end, first + 1
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def rows_and_width(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the number of rows along the last axis, and its width; (1, 1) for a scalar."""
    return (math.prod(shape[:-1]), shape[-1]) if shape else (1, 1)
