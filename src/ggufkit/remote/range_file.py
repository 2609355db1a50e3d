"""Files that are read by ranges: the interface that the rest of ggufkit reads, for any bytes."""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ggufkit.errors import FormatError
from ggufkit.system.descriptors import COPY_BYTES, write_at
from ggufkit.system.mapped_file import Bytes, closed_error


class ByteRange(NamedTuple):
    """`nbytes` bytes from `offset` on, up to `stop`."""

    offset: int
    nbytes: int

    @property
    def stop(self) -> int:
        """The offset of the first byte after them."""
        return self.offset + self.nbytes


class RangeFile(ABC):
    """A file that is not mapped: its bytes are read when they are needed.

    `data` is its beginning, as much as has been read; `load` reads more. It has the methods of a
    MappedFile that models, plans and commands use.
    """

    def __init__(self, path: Path) -> None:
        """Name the file; nothing is read yet."""
        self.path = path
        self.data: bytes = b""
        self.closed: bool = False
        self._load_lock = threading.Lock()

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """The size of the whole file."""

    @property
    @abstractmethod
    def identity(self) -> tuple[object, ...]:
        """A value that identifies this file in its present state."""

    @property
    def sha256(self) -> str:
        """The SHA-256 that a server states for the file, "" if none does."""
        return ""

    def expect_short_header(self) -> None:  # noqa: B027 (only servers send a first part)
        """Read little at first: for a later shard, or a file whose vocabulary is known."""

    @abstractmethod
    def fetch(self, ranges: Sequence[ByteRange]) -> Sequence[bytes | bytearray | memoryview]:
        """Return the bytes of all ranges, which are inside the file, as few requests as useful."""

    def load(self, nbytes: int) -> None:
        """Make `data` hold at least the first `nbytes` bytes, or the whole file."""
        with self._load_lock:
            self._require_open()
            stop = min(nbytes, self.nbytes)  # first: it may read the beginning
            start = len(self.data)
            if stop > start:
                (more,) = self.fetch([ByteRange(start, stop - start)])
                self.data = self.data + bytes(more) if start else bytes(more)

    def read(self, offset: int, nbytes: int) -> Bytes:
        """Return bytes; FormatError if the file ends before, or has changed since it was opened."""
        return self.read_many([ByteRange(offset, nbytes)])[0]

    view = read

    def read_many(self, ranges: Sequence[ByteRange]) -> list[Bytes]:
        """Return the bytes of several ranges; errors as `read`."""
        self._require_open()
        for requested in ranges:
            self._require_inside(requested)
        head = np.frombuffer(self.data, np.uint8)
        absent = [requested for requested in ranges if requested.stop > len(head)]
        fetched = iter(self.fetch(absent) if absent else ())
        return [
            np.frombuffer(next(fetched), np.uint8)
            if requested.stop > len(head)
            else head[requested.offset : requested.stop]
            for requested in ranges
        ]

    def copy(self, offset: int, nbytes: int, target: int, target_offset: int) -> None:
        """Copy bytes to the descriptor `target`; errors as `read`."""
        for copied in range(0, nbytes, COPY_BYTES):
            data = self.read(offset + copied, min(COPY_BYTES, nbytes - copied))
            write_at(target, data.data, target_offset + copied)

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[None]:
        """Allow reading `data`, which is a copy."""
        yield

    @property
    def status(self) -> os.stat_result:
        """The status of a file that everybody may read: servers do not know local users."""
        return os.stat_result((stat.S_IFREG | 0o644, 0, 0, 1, 0, 0, self.nbytes, 0, 0, 0))

    def same_file(self, path: Path) -> bool:  # noqa: ARG002 (the interface of files on disk)
        """Return False: no file on this disk is this one."""
        return False

    def close(self) -> None:
        """Forget the file; arrays already handed out stay valid."""
        self.closed = True

    def _require_open(self) -> None:
        if self.closed:
            raise closed_error(self.path)

    def _require_inside(self, requested: ByteRange) -> None:
        if requested.stop > self.nbytes:
            raise FormatError(
                f"the file ends at byte {self.nbytes:,}, before byte {requested.stop:,}",
                remedy="Use a complete file",
                path=str(self.path),
            )
