"""The common part of all files on servers: their state, and how ranges are fetched."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

from ggufkit.errors import FormatError
from ggufkit.remote import limits
from ggufkit.remote.range_coalescing import coalesce, in_parallel, parts_of
from ggufkit.remote.range_file import ByteRange, RangeFile
from ggufkit.system.descriptors import write_at

Write: TypeAlias = "Callable[[int, memoryview], None]"  # takes a position in the file, and bytes


@dataclass(frozen=True)
class FileState:
    """What a server says of a file, which must stay the same: size, ETag, Last-Modified."""

    nbytes: int
    etag: str = ""
    modified: str = ""


class ServerFile(RangeFile):
    """A file that comes in ranges from a server. The first request brings its beginning and state.

    A file that changes while it is read is a FormatError.
    """

    data: bytes
    first_bytes: int

    def __init__(self, path: Path, first_bytes: int = limits.FIRST_BYTES) -> None:
        """Name the file; the first read sends the first request, for `first_bytes` bytes."""
        super().__init__(path)
        self.first_bytes = first_bytes
        self._state: FileState | None = None
        self._state_lock = threading.Lock()

    def expect_short_header(self) -> None:
        """Make the first request small: for a later shard, or a file whose vocabulary is known."""
        self.first_bytes = min(self.first_bytes, limits.SHORT_BYTES)

    @abstractmethod
    def read_first(self) -> tuple[FileState, bytes]:
        """Return the state and the beginning of the file, from one request."""

    @abstractmethod
    def read_to(self, requested: ByteRange, write: Write) -> None:
        """Give a range to `write`, in order."""

    @property
    def state(self) -> FileState:
        """What the server says of the file; the first use sends the first request."""
        with self._state_lock:
            if self._state is None:
                self._state, self.data = self.read_first()
            return self._state

    @property
    def nbytes(self) -> int:
        """The size, which comes with the first range."""
        return self.state.nbytes

    @property
    def etag(self) -> str:
        """The ETag, "" where the server has none."""
        return self.state.etag

    @property
    def identity(self) -> tuple[object, ...]:
        """The URL, and the state of the file on the server."""
        state = self.state
        return str(self.path), state.nbytes, state.etag, state.modified

    def fetch(self, ranges: Sequence[ByteRange]) -> list[memoryview]:
        """Return the bytes of all ranges: near ones in one request, large ones in parallel."""
        self.state  # noqa: B018 (the first request)
        groups = coalesce(ranges)
        buffers = [_RangeBuffer(group.whole) for group in groups]
        in_parallel(
            partial(self.read_to, part, buffer.write)
            for group, buffer in zip(groups, buffers, strict=True)
            for part in parts_of(group.whole)
        )
        results: list[memoryview] = [memoryview(b"")] * len(ranges)
        for group, buffer in zip(groups, buffers, strict=True):
            for index in group.members:
                results[index] = buffer.view(ranges[index])
        return results

    def copy(self, offset: int, nbytes: int, target: int, target_offset: int) -> None:
        """Copy bytes to the descriptor `target`, several parts at the same time."""
        self._require_open()
        self._require_inside(ByteRange(offset, nbytes))
        if offset + nbytes <= len(self.data):
            super().copy(offset, nbytes, target, target_offset)
            return

        def write(position: int, data: memoryview) -> None:
            write_at(target, data, position - offset + target_offset)

        in_parallel(
            partial(self.read_to, part, write) for part in parts_of(ByteRange(offset, nbytes))
        )


class _RangeBuffer:
    """Memory for a range of a file."""

    def __init__(self, whole: ByteRange) -> None:
        self._start = whole.offset
        self._memory = memoryview(bytearray(whole.nbytes))

    def view(self, part: ByteRange) -> memoryview:
        start = part.offset - self._start
        return self._memory[start : start + part.nbytes]

    def write(self, position: int, data: memoryview) -> None:
        self.view(ByteRange(position, len(data)))[:] = data


def reopened(open_again: Callable[[], ServerFile], state: FileState) -> ServerFile:
    """Open a file that another process opened before; FormatError if it changed since."""
    file = open_again()
    if file.state != state:
        raise FormatError(
            "the file changed since the start",
            remedy="Run again, and do not change the input while it runs",
            path=str(file.path),
        )
    return file
