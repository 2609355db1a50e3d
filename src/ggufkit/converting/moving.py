"""Rows of other sources in another order, number or length, and arrays that must be made whole."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from ggufkit.mapping import Bytes
from ggufkit.rows import Made, Source

Index = npt.NDArray[np.int64]

KEPT_BYTES: Final = 256 << 20  # of arrays that had to be made whole
KEPT_ARRAYS: Final = 3  # never fewer: codes, zeros and scales of one weight are read together
NEAR: Final = 64  # rows between two wanted ones that are cheaper read than skipped


@dataclass(frozen=True, eq=False)
class Gathered(Made):
    """Rows of another source in another order."""

    inner: Source
    index: Index
    row_bytes: int

    def read(self, start: int, stop: int) -> Bytes:
        """Read the wanted rows, those that lie near each other together."""
        wanted = self.index[start:stop]
        out = np.empty((len(wanted), self.row_bytes), np.uint8)
        order = np.argsort(wanted, kind="stable")
        breaks = np.flatnonzero(np.diff(wanted[order]) > NEAR) + 1
        for places in np.split(order, breaks):
            if len(places):
                first, last = int(wanted[places[0]]), int(wanted[places[-1]])
                out[places] = self.inner.read(first, last + 1)[wanted[places] - first]
        return out


@dataclass(frozen=True, eq=False)
class Recut(Made):
    """The bytes of another source cut into rows of another length."""

    inner: Source
    inner_row_bytes: int
    row_bytes: int

    def read(self, start: int, stop: int) -> Bytes:
        """Read the rows that hold the bytes wanted."""
        begin, end = start * self.row_bytes, stop * self.row_bytes
        first, last = begin // self.inner_row_bytes, -(-end // self.inner_row_bytes)
        data = np.ascontiguousarray(self.inner.read(first, last)).reshape(-1)
        skipped = first * self.inner_row_bytes
        return data[begin - skipped : end - skipped].reshape(stop - start, self.row_bytes)


class _Recent:
    """The arrays made whole that were read last, those before them let go."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sizes: OrderedDict[weakref.ref[Whole], int] = OrderedDict()

    def note(self, whole: Whole, nbytes: int) -> None:
        """Take note that an array was read, and let go of what is beyond the limit."""
        with self.lock:
            place = weakref.ref(whole)
            self.sizes[place] = nbytes
            self.sizes.move_to_end(place)
            while sum(self.sizes.values()) > KEPT_BYTES and len(self.sizes) > KEPT_ARRAYS:
                oldest = self.sizes.popitem(last=False)[0]()
                if oldest is not None:
                    oldest.forget()


_RECENT: Final = _Recent()


@dataclass(frozen=True, eq=False)
class Whole(Made):
    """Rows of an array that can only be made whole: kept while it is among the last read."""

    make: Callable[[], Bytes]
    lock: threading.Lock = field(default_factory=threading.Lock)
    kept: list[Bytes] = field(default_factory=list)

    def read(self, start: int, stop: int) -> Bytes:
        """Return rows."""
        with self.lock:
            if not self.kept:
                self.kept.append(self.make())
            made = self.kept[0]
        _RECENT.note(self, made.nbytes)
        return made[start:stop]

    def forget(self) -> None:
        """Let the array go; the next read makes it again."""
        with self.lock:
            self.kept.clear()
