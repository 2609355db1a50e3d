"""Connections to servers: kept alive, through proxies, with time limits on every byte."""

from __future__ import annotations

import atexit
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
from typing import Any, Final, cast

from ggufkit.errors import RemoteError
from ggufkit.remote import limits
from ggufkit.remote.trust import Zone, require_zone, zone_of_host, zone_of_socket_address
from ggufkit.remote.url import Url, redacted

MAX_REASON: Final = 200  # characters of an error, which may hold a line of the server
CA_BUNDLES: Final = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")  # first that is set


class SlowError(OSError):
    """A server sends nothing, or too little."""


class _TimedSocket(io.RawIOBase):
    """What a response reads from: each byte within the limits of time."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__()
        self._sock = sock
        self._raw = sock.makefile("rb", buffering=0)  # keeps the socket open for the response
        self.deadline: float = time.monotonic() + limits.ANSWER_SECONDS

    def makefile(self, *_: object) -> io.BufferedReader:
        return io.BufferedReader(self, limits.BUFFER_BYTES)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:  # noqa: ANN401 (as the base class)
        """Read the received bytes; SlowError if none arrive in time."""
        remaining = self.deadline - time.monotonic()
        if remaining <= 0:
            raise SlowError(errno.ETIMEDOUT, "the server sends too slowly")
        self._sock.settimeout(min(remaining, limits.SILENT_SECONDS))
        try:
            return self._raw.readinto(buffer)
        except TimeoutError:
            raise SlowError(errno.ETIMEDOUT, "the server stopped sending") from None

    def close(self) -> None:
        """Close the reader; the connection closes its socket itself."""
        self._raw.close()
        super().close()


class Response(http.client.HTTPResponse):
    """A response over a timed socket, whose deadline the reader of its body moves."""

    connection: Connection  # that it came through

    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        self.timed: _TimedSocket = _TimedSocket(sock)
        super().__init__(self.timed, *args, **options)  # type: ignore[arg-type]


def proxy_of(url: Url) -> Url | None:
    """Return the proxy of a URL that http_proxy, all_proxy and so on, or the system, set.

    Raises RemoteError for a proxy that does not speak http.
    """
    proxies = urllib.request.getproxies()
    address = proxies.get(url.scheme) or proxies.get("all")
    if not address or urllib.request.proxy_bypass(url.authority):
        return None
    text = address if "://" in address else f"http://{address}"
    try:
        return Url.parse(text)
    except RemoteError as error:
        raise RemoteError(
            f"the proxy {redacted(text)} cannot be used: only http(s) proxies can",
            remedy=f"Set {url.scheme}_proxy=http://HOST:PORT, or no_proxy={url.host}",
        ) from error


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
    """Return the TLS settings, with certificates of the system or of the environment."""
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
        self.url: Url = url
        self.proxy: Url | None = proxy_of(url)
        self._limit = Zone.MACHINE
        self._zone: Zone | None = None
        peer = self.proxy or url
        self._login = {"Proxy-Authorization": peer.authorization} if peer.user else {}
        self.http: http.client.HTTPConnection
        if url.scheme == "https":
            self.http = http.client.HTTPSConnection(
                peer.host, peer.port, timeout=limits.CONNECT_SECONDS, context=tls()
            )
        else:
            self.http = http.client.HTTPConnection(
                peer.host, peer.port, timeout=limits.CONNECT_SECONDS
            )
        if self.proxy and url.scheme == "https":
            self.http.set_tunnel(url.host, url.port, headers=self._login)
        self.http.response_class = Response
        if not self.proxy:  # a proxy looks the name up itself
            self.http._create_connection = self._connect  # type: ignore[attr-defined] # noqa: SLF001

    def _connect(self, peer: tuple[str, int], *_: object) -> socket.socket:
        """Resolve the name once, and connect to an address in the allowed zones."""
        failure = OSError(errno.EHOSTUNREACH, "the host has no address")
        for family, kind, protocol, _name, address in socket.getaddrinfo(
            *peer, type=socket.SOCK_STREAM
        ):
            self._zone = zone_of_socket_address(family, address)
            require_zone(self.url, self._zone, self._limit)
            sock = socket.socket(family, kind, protocol)
            try:
                sock.settimeout(limits.CONNECT_SECONDS)
                sock.connect(address)
            except OSError as error:
                failure = error
                sock.close()
            else:
                return sock
        raise failure

    @property
    def zone(self) -> Zone:
        """The zone of the server; behind a proxy, as this machine resolves its name."""
        if self._zone is None:
            self._zone = zone_of_host(self.url)
        return self._zone

    def get(self, url: Url, headers: Mapping[str, str], limit: Zone) -> Response:
        """Send a request and return the response, its body unread.

        Raises RemoteError if the server is in a higher zone than `limit`.
        """
        self._limit = limit
        target, login = url.target, {}
        if self.proxy and url.scheme == "http":
            target, login = url.full, self._login
        try:
            if limit < Zone.MACHINE and (self.proxy or self.http.sock is not None):
                require_zone(url, self.zone, limit)
            if self.http.sock is not None:
                self.http.sock.settimeout(limits.SILENT_SECONDS)
            self.http.request("GET", target, headers={"Host": url.authority, **login, **headers})
            response = cast("Response", self.http.getresponse())
        except BaseException:
            self.http.close()
            raise
        response.connection = self
        return response


Origin = tuple[str, str, int]


class Pool:
    """The idle connections of this process to each server, and how many may be open."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[Origin, deque[tuple[float, Connection]]] = {}  # with the time of its use
        self._open: dict[Origin, threading.BoundedSemaphore] = {}
        self._process = os.getpid()

    @contextlib.contextmanager
    def get(
        self, url: Url, headers: Mapping[str, str], limit: Zone = Zone.MACHINE
    ) -> Iterator[Response]:
        """Provide the response to a GET; the connection is reused if its body was read to the end.

        Errors are those of sockets and of http.client, and RemoteError for a server in a higher
        zone than `limit`.
        """
        with self._slot(url.origin):
            response = self._response(url, headers, limit)
            try:
                yield response
            finally:
                if response.isclosed() and not response.will_close:
                    self._put_back(response.connection)
                else:
                    response.close()
                    response.connection.http.close()

    def _response(self, url: Url, headers: Mapping[str, str], limit: Zone) -> Response:
        """Send a request; replace an idle connection that the server has closed."""
        idle = self._take(url.origin)
        if idle is not None:
            with contextlib.suppress(ConnectionError):
                return idle.get(url, headers, limit)
        return Connection(url).get(url, headers, limit)

    def _slot(self, origin: Origin) -> threading.BoundedSemaphore:
        with self._lock:
            if self._process != os.getpid():  # a fork: both would read from the same connections
                self._idle, self._open, self._process = {}, {}, os.getpid()
            return self._open.setdefault(origin, threading.BoundedSemaphore(limits.CONNECTIONS))

    def _take(self, origin: Origin) -> Connection | None:
        """Return an idle connection; close old ones, which may be broken without a sign."""
        with self._lock:
            idle = self._idle.get(origin, deque())
            while idle:
                used_at, connection = idle.pop()
                if time.monotonic() - used_at < limits.IDLE_SECONDS:
                    return connection
                connection.http.close()
        return None

    def _put_back(self, connection: Connection) -> None:
        with self._lock:
            idle = self._idle.setdefault(connection.url.origin, deque())
            idle.append((time.monotonic(), connection))

    def close(self) -> None:
        """Close all idle connections."""
        with self._lock:
            connections = [connection for idle in self._idle.values() for _, connection in idle]
            self._idle.clear()
        for connection in connections:
            connection.http.close()


def drain(response: http.client.HTTPResponse) -> None:
    """Read the rest of a short body, so that its connection can be kept."""
    most = limits.MAX_ERROR_BYTES
    with contextlib.suppress(OSError, http.client.HTTPException):
        while most > 0 and (data := response.read(min(most, limits.BUFFER_BYTES))):
            most -= len(data)


def unreachable(url: Url, error: Exception) -> RemoteError:
    """Return the error that says why a server cannot be read, and what to do."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return RemoteError(
            f"the certificate of {url.host} is not valid: {error.verify_message}",
            remedy=f"Name your organization's certificates in {CA_BUNDLES[0]}",
        )
    if isinstance(error, socket.gaierror):
        return RemoteError(
            f"the host {url.host} is unknown", remedy="Check the name, and the network"
        )
    reason = getattr(error, "strerror", None) or str(error)[:MAX_REASON] or type(error).__name__
    return RemoteError(f"{url} cannot be read: {reason}", remedy="Check the network, and try again")


POOL: Final = Pool()
atexit.register(POOL.close)
