"""What all files on servers share: their state, and how ranges of them are fetched."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ggufkit.errors import FormatError
from ggufkit.remote import limits
from ggufkit.remote.range_file import ByteRange, RangeFile
from ggufkit.remote.sinks import DescriptorSink, MemorySink, Sink
from ggufkit.remote.together import coalesced, in_parallel, parts_of


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
        self._beginning = threading.Lock()

    def expect_short_header(self) -> None:
        """Ask for little first: the file is a further shard of a set."""
        self.first_bytes = min(self.first_bytes, limits.SHORT_BYTES)

    @abstractmethod
    def begin(self) -> tuple[FileState, bytes]:
        """Return the state and the beginning of the file, of one request."""

    def recall(self) -> bool:
        """Take the beginning from this disk if it is kept there; return whether it was."""
        return False

    def remember(self, nbytes: int) -> None:
        """Keep the first `nbytes` bytes on this disk, if the file can be recognized later."""

    @abstractmethod
    def read_to(self, wanted: ByteRange, sink: Sink) -> None:
        """Give a range to `sink`."""

    @property
    def state(self) -> FileState:
        """What the server says of the file; the first use sends the first request."""
        with self._beginning:
            if self._state is None:
                self._state, self.data = self.begin()
            return self._state

    @property
    def nbytes(self) -> int:
        """The size that the server told with the first range."""
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
        groups = coalesced(ranges)
        memory = [memoryview(bytearray(group.whole.nbytes)) for group in groups]
        in_parallel(
            partial(self.read_to, part, MemorySink(view, group.whole.offset))
            for group, view in zip(groups, memory, strict=True)
            for part in parts_of(group.whole)
        )
        found: list[memoryview] = [memoryview(b"")] * len(ranges)
        for group, view in zip(groups, memory, strict=True):
            for index in group.members:
                at = ranges[index].offset - group.whole.offset
                found[index] = view[at : at + ranges[index].nbytes]
        return found

    def copy(self, offset: int, nbytes: int, target: int, target_offset: int) -> None:
        """Copy bytes to the descriptor `target`, several parts at the same time."""
        self._require_open()
        self._require_inside(ByteRange(offset, nbytes))
        if offset + nbytes <= len(self.data):
            super().copy(offset, nbytes, target, target_offset)
            return
        in_parallel(
            partial(self.read_to, part, DescriptorSink(target, target_offset - offset))
            for part in parts_of(ByteRange(offset, nbytes))
        )

    def changed(self) -> FormatError:
        """Return the error of a file that is no longer the same."""
        return FormatError(
            "the file changed while it was in use",
            remedy="Run again, and do not change the input while it runs",
            path=str(self.path),
        )


def reopened(make: Callable[[], ServerFile], state: FileState) -> ServerFile:
    """Open a file that another process has open; FormatError if it is no longer the same."""
    file = make()
    if file.state != state:
        raise FormatError(
            "the file changed since the start",
            remedy="Run again, and do not change the input while it runs",
            path=str(file.path),
        )
    return file
