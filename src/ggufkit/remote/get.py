"""One GET: redirects followed, refusals turned into errors, and tries repeated with patience."""

from __future__ import annotations

import contextlib
import email.utils
import http
import http.client
import random
import socket
import ssl
import threading
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
from ggufkit.remote.connections import POOL, SlowError, drain, unreachable
from ggufkit.remote.trust import redirected
from ggufkit.remote.url import Login, Url
from ggufkit.system.threads import require_wanted

T = TypeVar("T")

AGENT: Final = f"ggufkit/{__version__}"
_REDIRECTS: Final = {301, 302, 303, 307, 308}
_MISSING: Final = {404, 410}
_DENIED: Final = {401, 403}
_AGAIN: Final = {408, 425, 429, 500, 502, 503, 504}
_STACK_LEVEL: Final = 3  # of warnings: who waits
_BROKEN: Final = (OSError, http.client.HTTPException)


class AgainError(Exception):
    """A try that may succeed when it is repeated, after `wait` seconds if the server says so."""

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
    """A response, the URL that gave it, and the headers of each redirect on the way."""

    response: http.client.HTTPResponse
    url: Url
    redirects: list[Mapping[str, str]] = field(default_factory=list)

    @property
    def status(self) -> int:
        """The number of the status."""
        return self.response.status

    def header(self, name: str) -> str:
        """Return a header, "" where it is absent."""
        return self.response.headers.get(name, "")


@contextlib.contextmanager
def get(
    url: Url, headers: Mapping[str, str] | None = None, login: Login | None = None
) -> Iterator[Answer]:
    """Provide the answer to a GET, after redirects; its status may be any.

    Raises RemoteError for redirects that must not be followed. Broken connections raise
    AgainError: use `patiently`.
    """
    hops: list[Mapping[str, str]] = []
    at = url
    while True:
        location = ""
        with _answer(at, {**(headers or {}), **_login_for(at, url, login)}) as response:
            location = response.headers.get("Location", "")
            if response.status not in _REDIRECTS or not location:
                yield Answer(response, at, hops)
                return
            hops.append(dict(response.headers.items()))
            drain(response)
        if len(hops) > limits.MAX_REDIRECTS:
            raise RemoteError(
                f"{url} redirects more than {limits.MAX_REDIRECTS} times",
                remedy="The server is wrong: get the file from elsewhere",
            )
        at = redirected(at, location)


def _login_for(at: Url, first: Url, login: Login | None) -> dict[str, str]:
    if login and at.origin == login.origin:
        return {"Authorization": login.header}
    return {"Authorization": at.authorization} if at.user and at.origin == first.origin else {}


@contextlib.contextmanager
def _answer(url: Url, headers: Mapping[str, str]) -> Iterator[http.client.HTTPResponse]:
    """Provide one response; any broken connection, until the caller is done, is an AgainError."""
    usual = {"User-Agent": AGENT, "Accept": "*/*", "Accept-Encoding": "identity"}
    try:
        with POOL.get(url, {**usual, **headers}) as response:
            yield response
    except GGUFError:
        raise
    except _BROKEN as error:
        try:
            unreachable(url, error)
        except RemoteError as told:
            if not _is_worth_repeating(error):
                raise
            is_lasting = isinstance(error, SlowError | ConnectionRefusedError)
            tries = limits.FEW_TRIES if is_lasting else limits.TRIES
            raise AgainError(told, tries=tries) from error


def _is_worth_repeating(error: Exception) -> bool:
    """Whether another try may succeed: not for unknown hosts and bad certificates."""
    return not isinstance(error, socket.gaierror | ssl.SSLCertVerificationError)


def require_success(answer: Answer, wanted: Url) -> None:
    """Raise the error that a status other than success means."""
    status = answer.status
    if status < http.HTTPStatus.BAD_REQUEST and status not in _REDIRECTS:
        return
    drain(answer.response)
    reason = f"{answer.url.host} answers {status} {answer.response.reason or ''}".rstrip()
    if status in _MISSING:
        raise RemoteMissingError(
            f"{wanted} does not exist: {reason}", remedy="Check the address for typing errors"
        )
    if status in _DENIED:
        raise RemoteDeniedError(
            f"{wanted} may not be read: {reason}", remedy="Log in, or ask the owner for access"
        )
    if status in _AGAIN:
        wait = _retry_after(answer.header("Retry-After"))
        remedy = "Try again later"
        raise AgainError(RemoteError(f"{wanted}: {reason}", remedy=remedy), wait)
    raise RemoteError(f"{wanted}: {reason}", remedy="Check the address")


def _retry_after(text: str) -> float | None:
    """Return the seconds of a Retry-After header, in either of its forms."""
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        if text.isascii() and text.strip().isdigit():
            return float(text)
        if text:
            return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    return None


def patiently(act: Callable[[], T], progress: Callable[[], int] = int) -> T:
    """Return what `act` returns; repeat it after an AgainError, with longer and longer waits.

    `progress` counts what is done: a try that did something does not count as failed.
    """
    failed, before = 0, progress()
    while True:
        try:
            return act()
        except AgainError as error:  # noqa: PERF203 (each round waits)
            now = progress()
            failed = 1 if now > before else failed + 1
            before = now
            if failed >= error.tries:
                raise error.error from None
            _wait(error, failed)


def _wait(error: AgainError, failed: int) -> None:
    """Wait before the next try: as long as the server says, or at random up to a growing limit."""
    wait = error.wait
    if wait is None:
        longest = min(limits.FIRST_WAIT * 2 ** (failed - 1), limits.LONGEST_WAIT)
        wait = random.uniform(longest / 2, longest)  # noqa: S311 (no secret)
    elif wait > limits.LONGEST_RETRY_AFTER:
        raise RemoteError(
            f"{error}; the server asks to wait {wait:,.0f} seconds", remedy="Try again after that"
        ) from error.error
    if wait >= limits.TOLD_SECONDS:
        warnings.warn(
            f"{error}; trying again in {wait:.0f} seconds", WaitingWarning, stacklevel=_STACK_LEVEL
        )
    until = time.monotonic() + wait
    while (left := until - time.monotonic()) > 0:
        require_wanted()
        threading.Event().wait(min(left, 0.1))
