"""A file on an http(s) server, read by ranges and checked to stay the same."""

from __future__ import annotations

import http
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from ggufkit.errors import NoRangesError, RemoteDeniedError, RemoteError
from ggufkit.remote import limits
from ggufkit.remote.connections import drain, pour
from ggufkit.remote.get import AgainError, Answer, get, patiently, require_success
from ggufkit.remote.range_file import ByteRange
from ggufkit.remote.server_file import FileState, ServerFile, reopened
from ggufkit.remote.sinks import MemorySink, Sink
from ggufkit.remote.url import Login, Url, UrlPath
from ggufkit.system.threads import require_wanted

_CONTENT_RANGE: Final = re.compile(r"bytes (?:(\d{1,19})-(\d{1,19})|\*)/(\d{1,19}|\*)")


class RemoteFile(ServerFile):
    """A file at a URL. The first request brings its beginning, its size and its ETag.

    `login` is for its own server alone. `redirects` holds the headers of the redirects of the first
    request, where the Hub says more of a file. A file that changes while it is read is a
    FormatError, a server that sends only whole files a NoRangesError.
    """

    def __init__(
        self, url: str | Url, *, login: Login | None = None, first_bytes: int = limits.FIRST_BYTES
    ) -> None:
        """Name the file; the first read sends the first request."""
        self.url: Url = url if isinstance(url, Url) else Url.parse(url)
        super().__init__(UrlPath(str(self.url)), first_bytes)
        self.login = login
        self.redirects: list[Mapping[str, str]] = []
        self._at = self.url  # where the redirects led: asked directly from then on

    def __reduce__(self) -> tuple[Callable[..., ServerFile], tuple[object, ...]]:
        """Pickle the URL, and the state that the file must still have; the login is left out."""
        return _reopened, (self.url, self.state)

    # Reading.

    def read_to(self, wanted: ByteRange, sink: Sink) -> None:
        """Read one range to `sink`; a broken connection goes on where it stopped."""
        done = [0]

        def rest() -> None:
            left = ByteRange(wanted.offset + done[0], wanted.nbytes - done[0])
            for count in self._ranged(left, sink):
                done[0] += count

        patiently(rest, lambda: done[0])

    def _ranged(self, wanted: ByteRange, sink: Sink) -> Iterator[int]:
        """Read one range in one request; yield the counts of bytes as they come."""
        end = sum(wanted)
        headers = {"Range": f"bytes={wanted.offset}-{end - 1}"}
        try:
            with get(self._at, headers, self.login) as answer:
                self._require_same(answer, wanted)
                self._at = answer.url
                came = 0
                for count in pour(answer.response, sink, wanted.offset, _length(answer, wanted)):
                    require_wanted()
                    came += count
                    yield count
        except RemoteDeniedError:
            if self._at == self.url:
                raise
            self._at = self.url  # the address that a redirect gave is valid for a time only
            raise AgainError(_ended_early(self.url)) from None
        if came < wanted.nbytes:
            raise AgainError(_ended_early(self.url), wait=0.0 if came else None)

    def _require_same(self, answer: Answer, wanted: ByteRange) -> None:
        """Raise unless an answer holds a range of the same file."""
        if answer.status == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise self.changed()  # it has become shorter
        require_success(answer, self.url)
        if answer.status == http.HTTPStatus.OK:
            raise no_ranges(self.url)
        start, nbytes = _placed(answer, self.url)
        if _differs(self.state, _state_of(answer, nbytes)):
            raise self.changed()
        if start != wanted.offset:
            raise wrong_range(self.url)

    # The first request.

    def begin(self) -> tuple[FileState, bytes]:
        """Return the state and the beginning of the file."""
        memory = bytearray(self.first_bytes)
        state, came = patiently(lambda: self._first(memory))
        return state, bytes(memoryview(memory)[:came])

    def _first(self, memory: bytearray) -> tuple[FileState, int]:
        """Read the beginning into `memory`; return the state of the file, and how much came."""
        headers = {"Range": f"bytes=0-{len(memory) - 1}"}
        with get(self.url, headers, self.login) as answer:
            if answer.status == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                drain(answer.response)
                return self._settled(answer, 0), 0
            require_success(answer, self.url)
            nbytes = _whole(answer, self.url, len(memory))
            wanted = nbytes
            if answer.status == http.HTTPStatus.PARTIAL_CONTENT:  # maybe less than was asked for
                wanted = _length(answer, ByteRange(0, len(memory)))
            came = sum(pour(answer.response, MemorySink(memoryview(memory), 0), 0, wanted))
            if came < wanted:
                raise AgainError(_ended_early(self.url))
            return self._settled(answer, nbytes), came

    def _settled(self, answer: Answer, nbytes: int) -> FileState:
        self._at, self.redirects = answer.url, answer.redirects
        return _state_of(answer, nbytes)


def _state_of(answer: Answer, nbytes: int) -> FileState:
    return FileState(nbytes, answer.header("ETag"), answer.header("Last-Modified"))


def _differs(before: FileState, now: FileState) -> bool:
    """Whether two states cannot be of the same file; where one tells less, the rest decides."""
    if before.nbytes != now.nbytes:
        return True
    if before.etag and now.etag:
        return before.etag != now.etag
    return bool(before.modified and now.modified) and before.modified != now.modified


def _whole(answer: Answer, url: Url, most: int) -> int:
    """Return the size of the file of a first answer; NoRangesError if it is all of a large one."""
    if answer.status != http.HTTPStatus.OK:
        start, nbytes = _placed(answer, url)
        if start:
            raise wrong_range(url)
        return nbytes
    _require_plain(answer, url)
    length = answer.header("Content-Length")
    if length.isdigit() and int(length) <= most:
        return int(length)
    raise no_ranges(url)


def _placed(answer: Answer, url: Url) -> tuple[int, int]:
    """Return where an answer's range begins, and the size of the file."""
    _require_plain(answer, url)
    found = _CONTENT_RANGE.fullmatch(answer.header("Content-Range").strip())
    if answer.status != http.HTTPStatus.PARTIAL_CONTENT or not found or found[1] is None:
        raise wrong_range(url)
    if found[3] == "*":
        raise RemoteError(
            f"{url}: the server does not tell the size of the file",
            remedy="Download the file with another program",
        )
    start, stop, nbytes = int(found[1]), int(found[2]) + 1, int(found[3])
    if not start < stop <= nbytes:
        raise wrong_range(url)
    return start, nbytes


def _length(answer: Answer, wanted: ByteRange) -> int:
    """Return the bytes to take of an answer: a server may send less than was asked for."""
    found = _CONTENT_RANGE.fullmatch(answer.header("Content-Range").strip())
    stop = int(found[2]) + 1 if found else 0
    return max(0, min(stop, sum(wanted)) - wanted.offset)


def _require_plain(answer: Answer, url: Url) -> None:
    """Refuse compressed ranges: nobody can tell which bytes of the file they hold."""
    encoding = answer.header("Content-Encoding").strip().lower()
    kind = answer.header("Content-Type").lower()
    if encoding not in ("", "identity") or kind.startswith("multipart/"):
        raise RemoteError(
            f"{url}: the server sends ranges in the form {encoding or kind!r}",
            remedy="Switch compression off on the server, or get the file from elsewhere",
        )


def wrong_range(url: Url) -> RemoteError:
    """Return the error of a server that answers a range with other bytes."""
    return RemoteError(
        f"{url}: the server sends other bytes than those asked for",
        remedy="Get the file from another server",
    )


def no_ranges(url: Url) -> NoRangesError:
    """Return the error of a server without ranges."""
    return NoRangesError(
        f"{url}: the server sends only whole files, so parts of it cannot be read",
        remedy=f"Download it first: ggufkit copy {url} {url.name or 'model.gguf'}",
    )


def _ended_early(url: Url) -> RemoteError:
    return RemoteError(f"{url}: the connection ended early", remedy="Check the network")


def _reopened(url: Url, state: FileState) -> ServerFile:
    return reopened(partial(RemoteFile, url, first_bytes=1), state)
