"""A file on an http(s) server, read by ranges and checked to stay the same."""

from __future__ import annotations

import http
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from ggufkit.errors import FormatError, NoRangesError, RemoteDeniedError, RemoteError
from ggufkit.remote import limits
from ggufkit.remote.connections import drain
from ggufkit.remote.get import (
    Answer,
    ReadDeadline,
    RetryableError,
    get,
    require_success,
    with_retries,
)
from ggufkit.remote.range_coalescing import coalesce, parts_of
from ggufkit.remote.range_file import ByteRange, RangeFile
from ggufkit.remote.trust import Zone
from ggufkit.remote.url import Login, Url, UrlPath
from ggufkit.system.cancellation import check_cancelled
from ggufkit.system.descriptors import write_at
from ggufkit.system.mapped_file import changed_error
from ggufkit.system.threads import in_parallel

Write: TypeAlias = "Callable[[int, memoryview], None]"  # takes a position in the file, and bytes

SHA256: Final = re.compile(r'"?([0-9a-f]{64})"?')
_CONTENT_RANGE: Final = re.compile(r"bytes (?:([0-9]{1,19})-([0-9]{1,19})|\*)/([0-9]{1,19}|\*)")


class FileState(NamedTuple):
    """What a server says of a file, which must stay the same: size, ETag, Last-Modified."""

    nbytes: int
    etag: str
    modified: str


class RemoteFile(RangeFile):
    """A file at a URL. The first request brings its beginning, its size and its ETag.

    `login` is for its own server alone. `redirects` holds the headers of the redirects of the first
    request, where the Hub says more of a file. A file that changes while it is read is a
    FormatError, a server that sends only whole files a NoRangesError.
    """

    def __init__(
        self, url: str | Url, *, login: Login | None = None, first_bytes: int = limits.FIRST_BYTES
    ) -> None:
        """Name the file; the first read sends the first request, for `first_bytes` bytes."""
        self.url: Url = url if isinstance(url, Url) else Url.parse(url)
        super().__init__(UrlPath(str(self.url)))
        self.login = login
        self.first_bytes: int = first_bytes
        self.redirects: list[Mapping[str, str]] = []
        # Where the redirects led, which is requested directly from then on, and their limit.
        self._target = (self.url, Zone.MACHINE)
        self._state: FileState | None = None
        self._state_lock = threading.Lock()

    def __reduce__(self) -> tuple[Callable[..., RemoteFile], tuple[object, ...]]:
        """Pickle the URL, and the state that the file must still have; the login is left out."""
        return reopened, (partial(RemoteFile, self.url, first_bytes=1), self.state)

    def expect_short_header(self) -> None:
        """Make the first request small."""
        self.first_bytes = min(self.first_bytes, limits.SHORT_BYTES)

    @property
    def state(self) -> FileState:
        """What the server says of the file; the first use sends the first request."""
        with self._state_lock:
            if self._state is None:
                self._state, beginning = self.read_first()
                self.data: bytes = beginning
            return self._state

    @property
    def nbytes(self) -> int:
        """The size, which comes with the first range."""
        return self.state.nbytes

    @property
    def identity(self) -> tuple[object, ...]:
        """The URL, and the state of the file on the server."""
        return str(self.path), *self.state

    @property
    def sha256(self) -> str:
        """The SHA-256 in the Hub's redirect, or in an ETag; "" for none."""
        headers = (item for redirect in self.redirects for item in redirect.items())
        etags = [value for name, value in headers if name.lower() == "x-linked-etag"]
        matches = (SHA256.fullmatch(etag.strip()) for etag in (*etags, self.state.etag))
        return next((match[1] for match in matches if match), "")

    # Reading.

    def fetch(self, ranges: Sequence[ByteRange]) -> list[memoryview]:
        """Return the bytes of all ranges: near ones in one request, large ones in parallel."""
        self.state  # noqa: B018 (the first request)
        groups = coalesce(ranges)
        buffers = [_RangeBuffer(group.whole) for group in groups]
        tasks = [
            partial(self.read_to, part, buffer.write)
            for group, buffer in zip(groups, buffers, strict=True)
            for part in parts_of(group.whole)
        ]
        in_parallel(tasks, limits.PARALLEL)
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

        parts = parts_of(ByteRange(offset, nbytes))
        in_parallel((partial(self.read_to, part, write) for part in parts), limits.PARALLEL)

    def read_to(self, requested: ByteRange, write: Write) -> None:
        """Give one range to `write`; after a broken connection, continue where it stopped."""
        deadline = ReadDeadline()

        def read_rest() -> None:
            received = deadline.nbytes
            rest = ByteRange(requested.offset + received, requested.nbytes - received)
            self._read_in_one_request(rest, write, deadline)

        with_retries(read_rest, deadline)

    def _read_in_one_request(
        self, requested: ByteRange, write: Write, deadline: ReadDeadline
    ) -> None:
        headers = {"Range": f"bytes={requested.offset}-{requested.stop - 1}"}
        received = 0
        url, limit = self._target
        try:
            with get(url, headers, self.login, limit) as answer:
                self._require_same(answer, requested)
                self._target = (answer.url, answer.limit)
                for chunk in answer.chunks(_usable_bytes(answer, requested), deadline):
                    check_cancelled()
                    write(requested.offset + received, chunk)
                    received += len(chunk)
        except RemoteDeniedError:
            if url == self.url:
                raise
            self._target = (self.url, Zone.MACHINE)  # redirects are valid for a time only
            raise RetryableError(ended_early(self.url)) from None
        if received < requested.nbytes:
            raise RetryableError(ended_early(self.url), wait=0.0 if received else None)

    def _require_same(self, answer: Answer, requested: ByteRange) -> None:
        """Raise unless an answer holds a range of the same file."""
        if answer.status == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise changed_error(self.path)  # it has become shorter
        require_success(answer, self.url)
        if answer.status == http.HTTPStatus.OK:
            raise no_ranges(self.url)
        start, nbytes = _content_range(answer, self.url)
        if _differs(self.state, _state_of(answer, nbytes)):
            raise changed_error(self.path)
        if start != requested.offset:
            raise wrong_range(self.url)

    # The first request.

    def read_first(self) -> tuple[FileState, bytes]:
        """Return the state and the beginning of the file."""
        return with_retries(self._read_first)

    def _read_first(self) -> tuple[FileState, bytes]:
        headers = {"Range": f"bytes=0-{self.first_bytes - 1}"}
        data = bytearray()
        with get(self.url, headers, self.login) as answer:
            if answer.status == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                drain(answer.response)
                return self._state_after(answer, 0), b""
            require_success(answer, self.url)
            nbytes = _file_bytes(answer, self.url, self.first_bytes)
            expected = nbytes
            if answer.status == http.HTTPStatus.PARTIAL_CONTENT:  # maybe less than was requested
                expected = _usable_bytes(answer, ByteRange(0, self.first_bytes))
            for chunk in answer.chunks(expected, ReadDeadline()):
                data += chunk
            if len(data) < expected:
                raise RetryableError(ended_early(self.url))
            return self._state_after(answer, nbytes), bytes(data)

    def _state_after(self, answer: Answer, nbytes: int) -> FileState:
        self._target, self.redirects = (answer.url, answer.limit), answer.redirects
        return _state_of(answer, nbytes)


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


def reopened(open_again: Callable[[], RemoteFile], state: FileState) -> RemoteFile:
    """Open a file that another process opened before; FormatError if it changed since."""
    file = open_again()
    if file.state != state:
        raise FormatError(
            "the file changed since the start",
            remedy="Run again, and do not change the input while it runs",
            path=str(file.path),
        )
    return file


def _state_of(answer: Answer, nbytes: int) -> FileState:
    return FileState(nbytes, answer.header("ETag"), answer.header("Last-Modified"))


def _differs(before: FileState, now: FileState) -> bool:
    """Whether two states cannot be of one file; facts that one of them lacks are ignored."""
    if before.nbytes != now.nbytes:
        return True
    if before.etag and now.etag:
        return before.etag != now.etag
    return bool(before.modified and now.modified) and before.modified != now.modified


def _file_bytes(answer: Answer, url: Url, most: int) -> int:
    """Return the file's size from a first answer; NoRangesError if it is all of a large file."""
    if answer.status != http.HTTPStatus.OK:
        start, nbytes = _content_range(answer, url)
        if start:
            raise wrong_range(url)
        return nbytes
    _require_plain(answer, url)
    length = answer.content_length
    if length is None or length > most:
        raise no_ranges(url)
    return length


def _content_range(answer: Answer, url: Url) -> tuple[int, int]:
    """Return the start of an answer's range, and the size of the file."""
    _require_plain(answer, url)
    match = _CONTENT_RANGE.fullmatch(answer.header("Content-Range").strip())
    if answer.status != http.HTTPStatus.PARTIAL_CONTENT or not match or match[1] is None:
        raise wrong_range(url)
    if match[3] == "*":
        raise unknown_size(url)
    start, stop, nbytes = int(match[1]), int(match[2]) + 1, int(match[3])
    if not start < stop <= nbytes:
        raise wrong_range(url)
    return start, nbytes


def _usable_bytes(answer: Answer, requested: ByteRange) -> int:
    """Return the bytes to take of an answer: a server may send less or more than requested."""
    match = _CONTENT_RANGE.fullmatch(answer.header("Content-Range").strip())
    stop = int(match[2]) + 1 if match else 0
    return max(0, min(stop, requested.stop) - requested.offset)


def _require_plain(answer: Answer, url: Url) -> None:
    """Refuse compressed ranges: they do not show which bytes of the file they contain."""
    encoding = answer.header("Content-Encoding").strip().lower()
    kind = answer.header("Content-Type").lower()
    if encoding not in ("", "identity") or kind.startswith("multipart/"):
        raise RemoteError(
            f"{url}: the server sends ranges in the form {encoding or kind!r}",
            remedy="Switch compression off on the server, or get the file from another server",
        )


def wrong_range(url: Url | Path) -> RemoteError:
    """Return the error of a server that sends other bytes than requested."""
    return RemoteError(
        f"{url}: the server sends other bytes than requested",
        remedy="Get the file from another server",
    )


def no_ranges(url: Url) -> NoRangesError:
    """Return the error of a server without ranges."""
    return NoRangesError(
        f"{url}: the server sends only whole files, so parts of it cannot be read",
        remedy=f"Download it first: ggufkit copy {url} {url.name or 'model.gguf'}",
    )


def unknown_size(url: Url) -> RemoteError:
    """Return the error of a server that does not state the size of a file."""
    return RemoteError(
        f"{url}: the server does not state the size of the file",
        remedy="Download the file with another program",
    )


def ended_early(url: Url) -> RemoteError:
    """Return the error of a body that is too short."""
    return RemoteError(f"{url}: the connection ended early", remedy="Check the network")
