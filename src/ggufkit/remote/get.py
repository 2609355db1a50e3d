"""One GET: it follows redirects, turns refusals into errors, and repeats failed tries."""

from __future__ import annotations

import contextlib
import email.utils
import http
import http.client
import random
import re
import socket
import ssl
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from ggufkit._version import __version__
from ggufkit.errors import (
    GGUFError,
    RemoteDeniedError,
    RemoteError,
    RemoteMissingError,
    WaitingWarning,
)
from ggufkit.remote import limits
from ggufkit.remote.connections import POOL, Response, SlowError, drain, unreachable
from ggufkit.remote.trust import Zone, redirected
from ggufkit.remote.url import Login, Url
from ggufkit.system.cancellation import pause

T = TypeVar("T")

_HEADERS: Final = {
    "User-Agent": f"ggufkit/{__version__}",
    "Accept": "*/*",
    "Accept-Encoding": "identity",
}
_LENGTH: Final = re.compile(r"[0-9]{1,19}")
_REDIRECTS: Final = {301, 302, 303, 307, 308}
_MISSING: Final = {404, 410}
_DENIED: Final = {401, 403}
_RETRYABLE: Final = {408, 425, 429, 500, 502, 503, 504}
_STACK_LEVEL: Final = 2  # of warnings: who waits
_BROKEN: Final = (OSError, http.client.HTTPException)


class ReadDeadline:
    """The deadline of a read. Each byte extends it; waits do too, up to a limit.

    A server cannot stretch a read by breaking it into many slow requests.
    """

    def __init__(self) -> None:
        self.nbytes: int = 0
        self.time: float = time.monotonic() + limits.SLOW_SECONDS
        self._waits: float = limits.ALL_WAITS

    def add_bytes(self, nbytes: int) -> None:
        """Extend the deadline for received bytes."""
        self.nbytes += nbytes
        self.time += nbytes / limits.SLOWEST

    def add_wait(self, seconds: float) -> None:
        """Extend the deadline for a wait before the next request."""
        granted = min(seconds, self._waits)
        self._waits -= granted
        self.time += granted

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() > self.time


class RetryableError(Exception):
    """An error that may not happen again, after `wait` seconds if the server says so."""

    def __init__(
        self, error: RemoteError, wait: float | None = None, tries: int = limits.TRIES
    ) -> None:
        """Keep the error to raise if no try succeeds."""
        super().__init__(str(error))
        self.error = error
        self.wait = wait
        self.tries = tries


@dataclass
class Answer:
    """A response, the URL that sent it, and the headers of each redirect on the way."""

    response: Response
    url: Url
    limit: Zone  # the highest zone that redirects could lead to
    redirects: list[Mapping[str, str]] = field(default_factory=list)

    @property
    def status(self) -> int:
        """The number of the status."""
        return self.response.status

    def header(self, name: str) -> str:
        """Return a header, "" where it is absent."""
        return self.response.headers.get(name, "")

    @property
    def content_length(self) -> int | None:
        """The size of the body, None where the server does not say it in a sensible number."""
        match = _LENGTH.fullmatch(self.header("Content-Length").strip())
        return int(match[0]) if match else None

    def read(self, nbytes: int) -> bytes:
        """Return at most the next `nbytes` bytes of the body."""
        with _network_errors(self.url):
            return self.response.read(nbytes)

    def chunks(self, nbytes: int, deadline: ReadDeadline) -> Iterator[memoryview]:
        """Yield the next `nbytes` bytes of the body, each chunk in the memory of the one before.

        It ends early where the body does. Each chunk that the caller is done with moves `deadline`.
        """
        timed = self.response.timed
        buffer = memoryview(bytearray(min(nbytes, limits.BUFFER_BYTES)))
        while nbytes:
            timed.deadline = deadline.time
            with _network_errors(self.url):
                count = self.response.readinto(buffer[:nbytes])
            if not count:
                return
            yield buffer[:count]
            deadline.add_bytes(count)
            nbytes -= count


@contextlib.contextmanager
def get(
    url: Url,
    headers: Mapping[str, str] | None = None,
    login: Login | None = None,
    limit: Zone = Zone.MACHINE,
) -> Iterator[Answer]:
    """Provide the answer to a GET, after redirects; its status may be any.

    A redirect never leads to a higher zone than the servers before it; `limit` is the zone of the
    redirects that led to `url`. Raises RemoteError for redirects that must not be followed. Broken
    connections raise RetryableError: use `with_retries`.
    """
    hops: list[Mapping[str, str]] = []
    target = url
    while True:
        all_headers = {**_HEADERS, **(headers or {}), **_login_header(target, url, login)}
        with contextlib.ExitStack() as connection:
            with _network_errors(target):
                response = connection.enter_context(POOL.get(target, all_headers, limit))
            location = response.headers.get("Location", "")
            if response.status not in _REDIRECTS or not location:
                yield Answer(response, target, limit, hops)
                return
            hops.append(dict(response.headers.items()))
            limit = min(limit, response.connection.zone)
            drain(response)
        if len(hops) > limits.MAX_REDIRECTS:
            raise RemoteError(
                f"{url} redirects more than {limits.MAX_REDIRECTS} times",
                remedy="The server is wrong: get the file from another server",
            )
        target = redirected(target, location)


def _login_header(target: Url, first: Url, login: Login | None) -> dict[str, str]:
    if login and target.origin == login.origin:
        return {"Authorization": login.header}
    is_own = target.user and target.origin == first.origin
    return {"Authorization": target.authorization} if is_own else {}


@contextlib.contextmanager
def _network_errors(url: Url) -> Iterator[None]:
    """Raise RetryableError for a broken connection, RemoteError if another try would not help."""
    try:
        yield
    except GGUFError:
        raise
    except _BROKEN as error:
        reason = unreachable(url, error)
        if isinstance(error, socket.gaierror | ssl.SSLCertVerificationError):
            raise reason from error
        is_lasting = isinstance(error, SlowError | ConnectionRefusedError)
        tries = limits.FEW_TRIES if is_lasting else limits.TRIES
        raise RetryableError(reason, tries=tries) from error


def require_success(answer: Answer, url: Url) -> None:
    """Raise the error that a status other than success means."""
    status = answer.status
    if status < http.HTTPStatus.BAD_REQUEST and status not in _REDIRECTS:
        return
    drain(answer.response)
    reason = f"{answer.url.host} answers {status} {answer.response.reason or ''}".rstrip()
    if status in _MISSING:
        raise RemoteMissingError(
            f"{url} does not exist: {reason}", remedy="Check the address for typing errors"
        )
    if status in _DENIED:
        raise RemoteDeniedError(
            f"{url} may not be read: {reason}", remedy="Log in, or ask the owner for access"
        )
    if status in _RETRYABLE:
        wait = _retry_after(answer.header("Retry-After"))
        remedy = "Try again later"
        raise RetryableError(RemoteError(f"{url}: {reason}", remedy=remedy), wait)
    raise RemoteError(f"{url}: {reason}", remedy="Check the address")


def _retry_after(text: str) -> float | None:
    """Return the seconds of a Retry-After header, in either of its forms."""
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        if text.isascii() and text.strip().isdigit():
            return float(text)
        if text:
            return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    return None


def with_retries(attempt: Callable[[], T], deadline: ReadDeadline | None = None) -> T:
    """Return what `attempt` returns; repeat it after a RetryableError, with ever longer waits.

    With `deadline`, an attempt continues where the attempt before stopped: it does not count as
    failed if it brought bytes, and none begins after the deadline.
    """
    failures, nbytes = 0, 0
    while True:
        try:
            return attempt()
        except RetryableError as error:  # noqa: PERF203 (each round waits)
            failures += 1
            if deadline and deadline.nbytes > nbytes:
                failures, nbytes = 1, deadline.nbytes
            if failures >= error.tries or (deadline and deadline.is_over):
                raise error.error from None
            wait = _seconds_to_wait(error, failures)
            if deadline:
                deadline.add_wait(wait)
            if wait >= limits.WARN_SECONDS:
                message = f"{error}; trying again in {wait:.0f} seconds"
                warnings.warn(message, WaitingWarning, stacklevel=_STACK_LEVEL)
            pause(wait)


def _seconds_to_wait(error: RetryableError, failures: int) -> float:
    """Return the seconds that the server asks for, or random seconds up to a growing limit."""
    wait = error.wait
    if wait is None:
        longest = min(limits.FIRST_WAIT * 2 ** (failures - 1), limits.LONGEST_WAIT)
        return random.uniform(longest / 2, longest)  # noqa: S311 (no secret)
    if wait > limits.LONGEST_RETRY_AFTER:
        raise RemoteError(
            f"{error}; the server asks to wait {wait:,.0f} seconds", remedy="Try again after that"
        ) from error.error
    return wait
