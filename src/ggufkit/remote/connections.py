"""Connections to servers: kept alive, through proxies, with time limits on every byte."""

from __future__ import annotations

import atexit
import base64
import contextlib
import errno
import functools
import http.client
import io
import os
import socket
import ssl
import threading
import time
import urllib.request
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import unquote

from ggufkit.errors import RemoteError
from ggufkit.remote import limits
from ggufkit.remote.sinks import Sink
from ggufkit.remote.url import Url, shown

CA_BUNDLES: Final = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")  # first that is set


class SlowError(OSError):
    """A server sends nothing, or too little."""


class _TimedSocket(io.RawIOBase):
    """What a response reads from: each byte within the limits of time."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__()
        self._sock = sock
        self._raw = sock.makefile("rb", buffering=0)  # keeps the socket open for the response
        self.deadline = time.monotonic() + limits.ANSWER_SECONDS

    def makefile(self, *_: object) -> io.BufferedReader:
        """Return the reader that a response asks for."""
        return io.BufferedReader(self, limits.BUFFER_BYTES)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int | None:  # noqa: ANN401 (as the base class)
        """Read what came; SlowError if nothing comes in time."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise SlowError(errno.ETIMEDOUT, "the server sends too slowly")
        self._sock.settimeout(min(left, limits.SILENT_SECONDS))
        try:
            return self._raw.readinto(buffer)
        except TimeoutError:
            raise SlowError(errno.ETIMEDOUT, "the server stopped sending") from None

    def close(self) -> None:
        """Close the reader; the connection closes its socket itself."""
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    """A response over a timed socket, whose deadline the reader of its body moves."""

    def __init__(self, sock: socket.socket, *rest: Any, **more: Any) -> None:
        self.timed = _TimedSocket(sock)
        super().__init__(self.timed, *rest, **more)  # type: ignore[arg-type]


class Proxy:
    """The proxy of the environment for one URL; `address` is empty where there is none."""

    def __init__(self, url: Url) -> None:
        """Look up http_proxy, https_proxy, all_proxy and no_proxy, or the system's settings."""
        found = urllib.request.getproxies()
        is_direct = urllib.request.proxy_bypass(url.authority)
        self.address: str = "" if is_direct else found.get(url.scheme) or found.get("all") or ""
        self.headers: dict[str, str] = {}
        if not self.address:
            return
        text = self.address if "://" in self.address else f"http://{self.address}"
        try:
            self.url: Url = Url.parse(text)
        except RemoteError as error:
            raise RemoteError(
                f"the proxy {shown(text)} cannot be used: only http(s) proxies can",
                remedy=f"Set {url.scheme}_proxy=http://HOST:PORT, or no_proxy={url.host}",
            ) from error
        if self.url.user:
            login = base64.b64encode(unquote(self.url.user).encode()).decode()
            self.headers["Proxy-Authorization"] = f"Basic {login}"


@functools.cache
def _tls(bundle: str) -> ssl.SSLContext:
    if bundle:
        if Path(bundle).is_dir():
            return ssl.create_default_context(capath=bundle)
        return ssl.create_default_context(cafile=bundle)
    context = ssl.create_default_context()
    if not context.cert_store_stats()["x509_ca"]:
        with contextlib.suppress(ImportError):  # some builds of Python come without certificates
            import certifi  # noqa: PLC0415 (only where it is needed)

            context.load_verify_locations(certifi.where())
    return context


def tls() -> ssl.SSLContext:
    """Return the TLS settings: the system's certificates, or those of the environment."""
    bundle = next(filter(None, (os.environ.get(name) for name in CA_BUNDLES)), "")
    try:
        return _tls(bundle)
    except OSError as error:
        raise RemoteError(
            f"the certificates in {bundle} cannot be read: {error.strerror or error}",
            remedy=f"Correct or unset {' or '.join(CA_BUNDLES)}",
        ) from error


class Connection:
    """A connection to a URL's host or its proxy; it opens with the first request."""

    def __init__(self, url: Url) -> None:
        """Choose host, proxy and encryption."""
        self.used_at: float = 0.0
        self.proxy: Proxy = Proxy(url)
        to = self.proxy.url if self.proxy.address else url
        self.http: http.client.HTTPConnection
        if url.scheme == "https":
            self.http = http.client.HTTPSConnection(
                to.host, to.port, timeout=limits.CONNECT_SECONDS, context=tls()
            )
        else:
            self.http = http.client.HTTPConnection(to.host, to.port, timeout=limits.CONNECT_SECONDS)
        self.is_absolute: bool = bool(self.proxy.address) and url.scheme == "http"
        if self.proxy.address and url.scheme == "https":
            self.http.set_tunnel(url.host, url.port, headers=self.proxy.headers)
        self.http.response_class = _Response

    def just_used(self) -> Connection:
        """Note the time, and return itself."""
        self.used_at = time.monotonic()
        return self

    def get(self, url: Url, headers: Mapping[str, str]) -> http.client.HTTPResponse:
        """Send a request and return the response, its body unread."""
        more = self.proxy.headers if self.is_absolute else {}
        if self.http.sock is not None:
            self.http.sock.settimeout(limits.SILENT_SECONDS)
        target = url.full if self.is_absolute else url.target
        self.http.request("GET", target, headers={"Host": url.authority, **more, **headers})
        return self.http.getresponse()


Origin = tuple[str, str, int]


class Pool:
    """The idle connections of this process to each server, and how many may be open."""

    def __init__(self) -> None:
        """Start without connections."""
        self._lock = threading.Lock()
        self._idle: dict[Origin, deque[Connection]] = {}
        self._open: dict[Origin, threading.BoundedSemaphore] = {}
        self._process = os.getpid()

    @contextlib.contextmanager
    def get(self, url: Url, headers: Mapping[str, str]) -> Iterator[http.client.HTTPResponse]:
        """Provide the response to a GET; the connection is kept if its body was read to the end.

        Errors are those of sockets and of http.client.
        """
        with self._slot(url.origin):
            connection, response = self._answer(url, headers)
            try:
                yield response
            finally:
                if response.isclosed() and not response.will_close:
                    self._keep(url.origin, connection)
                else:
                    response.close()
                    connection.http.close()

    def _answer(
        self, url: Url, headers: Mapping[str, str]
    ) -> tuple[Connection, http.client.HTTPResponse]:
        """Send a request; a kept connection that the server closed meanwhile is replaced."""
        kept = self._take(url.origin)
        if kept is not None:
            try:
                return kept, kept.get(url, headers)
            except ConnectionError:
                kept.http.close()
            except BaseException:
                kept.http.close()
                raise
        connection = Connection(url)
        try:
            return connection, connection.get(url, headers)
        except BaseException:
            connection.http.close()
            raise

    def _slot(self, origin: Origin) -> threading.BoundedSemaphore:
        with self._lock:
            if self._process != os.getpid():  # a fork: both would read from the same connections
                self._idle, self._open, self._process = {}, {}, os.getpid()
            return self._open.setdefault(origin, threading.BoundedSemaphore(limits.CONNECTIONS))

    def _take(self, origin: Origin) -> Connection | None:
        """Return an idle connection; old ones may be dead without a sign, and are closed."""
        with self._lock:
            idle = self._idle.get(origin, deque())
            while idle:
                found = idle.pop()
                if time.monotonic() - found.used_at < limits.IDLE_SECONDS:
                    return found
                found.http.close()
        return None

    def _keep(self, origin: Origin, connection: Connection) -> None:
        with self._lock:
            self._idle.setdefault(origin, deque()).append(connection.just_used())

    def close(self) -> None:
        """Close all idle connections."""
        with self._lock:
            found = [each for idle in self._idle.values() for each in idle]
            self._idle.clear()
        for each in found:
            each.http.close()


def pour(response: http.client.HTTPResponse, sink: Sink, at: int, nbytes: int) -> Iterator[int]:
    """Give the next `nbytes` bytes of a body to `sink` from position `at` on; yield each count.

    It ends early where the body does. The whole may take as long as the slowest allowed server
    needs.
    """
    timed = getattr(response, "timed", None)
    started, left = time.monotonic(), nbytes
    while left:
        if timed is not None:
            timed.deadline = started + limits.SLOW_SECONDS + (nbytes - left) / limits.SLOWEST
        memory = sink.room(at, min(left, limits.BUFFER_BYTES))
        count = response.readinto(memory)
        if not count:
            return
        sink.keep(at, memory[:count])
        at, left = at + count, left - count
        yield count


def drain(response: http.client.HTTPResponse, most: int = limits.MAX_ERROR_BYTES) -> None:
    """Read the rest of a short body, so that its connection can be kept."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        while most > 0 and (data := response.read(min(most, limits.BUFFER_BYTES))):
            most -= len(data)


def unreachable(url: Url, error: Exception) -> NoReturn:
    """Raise the RemoteError that says why a server cannot be read, and what to do."""
    if isinstance(error, ssl.SSLCertVerificationError):
        raise RemoteError(
            f"the certificate of {url.host} is not valid: {error.verify_message}",
            remedy=f"Name your organization's certificates in {CA_BUNDLES[0]}",
        ) from error
    if isinstance(error, socket.gaierror):
        raise RemoteError(
            f"the host {url.host} is unknown", remedy="Check the name, and the network"
        ) from error
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    raise RemoteError(
        f"{url} cannot be read: {reason}", remedy="Check the network, and try again"
    ) from error


POOL: Final = Pool()
atexit.register(POOL.close)
