"""A server of files in memory with exact ranges and ETags, which counts requests and bytes.

`faults` make it misbehave: a function that may answer a request itself.
"""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import threading
import time
import zlib
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PIECE = 1 << 16
LEAST_WAIT = 0.004


@dataclass
class Request:
    """A request, and how many bytes of body it got."""

    path: str
    headers: dict[str, str]
    sent: int = 0
    status: int = 0


@dataclass
class Served:
    """Serves `files` by path on loopback while it is used as a context."""

    files: dict[str, bytes]
    ranges: bool = True
    fault: object = None  # called with (handler, request number); True if it answered
    latency: float = 0.0  # seconds before each answer
    rate: float = 0.0  # bytes per second of all connections together; 0 is unlimited
    etags: bool = True
    certificate: str = ""  # a file with key and certificate: serve https
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    sockets: list[socket.socket] = field(default_factory=list)

    def __enter__(self):
        self._lock = threading.Lock()
        self._free_at = 0.0
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.served = self
        if self.certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
        for connection in self.sockets:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def url(self, path: str) -> str:
        scheme = "https" if self.certificate else "http"
        return f"{scheme}://127.0.0.1:{self._server.server_port}{path}"

    @property
    def sent(self) -> int:
        """All bytes of bodies."""
        return sum(request.sent for request in self.requests)

    def forget(self) -> None:
        self.requests.clear()

    def pace(self, nbytes: int) -> None:
        """Wait until the line could have carried these bytes."""
        if not self.rate:
            return
        with self._lock:
            now = time.monotonic()
            self._free_at = max(self._free_at, now) + nbytes / self.rate
            wait = self._free_at - now
        if wait > LEAST_WAIT:  # shorter ones take longer than they should
            time.sleep(wait)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        """Stay silent: clients leave as they like."""

    def process_request(self, request, client_address):
        self.served.connections += 1
        self.served.sockets.append(request)
        super().process_request(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def log_message(self, *_):
        """Stay silent."""

    @property
    def served(self) -> Served:
        return self.server.served

    def do_GET(self):
        served = self.served
        self.request_seen = Request(self.path, {k.lower(): v for k, v in self.headers.items()})
        served.requests.append(self.request_seen)
        time.sleep(served.latency)
        if served.fault and served.fault(self, len(served.requests)):
            return
        self.answer()

    def do_HEAD(self):
        self.do_GET()

    def answer(self, *, etag: str | None = None, data: bytes | None = None):
        """Answer as a good server does."""
        data = self.served.files.get(self.path.partition("?")[0]) if data is None else data
        if data is None:
            self.send(404, b"absent")
            return
        tag = etag or f'"{zlib.crc32(data[:1000]):x}-{len(data):x}"'
        headers = {"ETag": tag} if self.served.etags else {}
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not match or not self.served.ranges:
            self.send(200, data, headers)
            return
        start, stop = int(match[1]), min(int(match[2]) + 1, len(data))
        if start >= len(data):
            self.send(416, b"", {"Content-Range": f"bytes */{len(data)}"})
            return
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
        self.send(206, data[start:stop], headers)

    def send(self, status, body=b"", headers=None, *, length=None, upto=None):
        """Send a response; `length` is what it claims, `upto` how much of it is sent."""
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.request_seen.status = status
        if self.command == "HEAD":
            return
        with contextlib.suppress(OSError):
            for start in range(0, len(body[:upto]), PIECE):
                piece = body[:upto][start : start + PIECE]
                self.served.pace(len(piece))
                self.wfile.write(piece)
                self.request_seen.sent += len(piece)
            self.wfile.flush()
        if upto is not None or length is not None:
            self.close_connection = True
