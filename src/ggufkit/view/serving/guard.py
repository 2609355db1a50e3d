"""Lets only the page itself talk to the server: token, Host, Origin, and headers for browsers.

A web page that the user visits elsewhere can send requests to this machine. It does not know the
token; and where a browser says which page asks (Origin, Sec-Fetch-Site), others are refused. The
Host must be an address of this server, so that no name elsewhere can be made to point here.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

VALID_SECONDS: Final = 300  # a browser that starts first may take long
_ROOT: Final = 0
_TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")  # of connections, on Linux
_OWNER_COLUMN: Final = 7


class OpeningCode:
    """The code that opens the page in a browser: it stands in the browser's command line.

    Every user of a machine can read the command lines of all processes, so the code is taken once,
    soon after the start, and on Linux only from processes of the user who started the server. It
    leads to the address of the page. A cookie would be sent to other ports of this machine too.
    """

    def __init__(self, text: str) -> None:
        """Keep the code, and when it expires."""
        self.text = text
        self._expires = time.monotonic() + VALID_SECONDS
        self._is_used = False

    def take(self, code: str, scope: Scope) -> bool:
        """Return whether a request may open the page, which no later request may."""
        is_right = secrets.compare_digest(code.encode(), self.text.encode())
        is_late = self._is_used or time.monotonic() > self._expires
        if not is_right or is_late or owner_of(scope) not in {None, _ROOT, os.getuid()}:
            return False
        self._is_used = True
        return True


def owner_of(scope: Scope) -> int | None:
    """Return the user id of the process at the other end, None if the system does not tell."""
    client, server = (f":{scope[end][1]:04X}" for end in ("client", "server"))
    for columns in map(str.split, _connections()):
        if columns[1].endswith(client) and columns[2].endswith(server):
            return int(columns[_OWNER_COLUMN])
    return None


def _connections() -> Iterator[str]:
    for table in _TABLES:
        with contextlib.suppress(OSError), Path(table).open(encoding="ascii") as rows:
            yield from rows


LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
ANY_ADDRESS: Final = ("0.0.0.0", "::", "")  # noqa: S104 (compared with, not bound to)
TOKEN_BYTES: Final = 24
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
OPENING_PATH: Final = "/open/"
_USED: Final = (
    "this address opens the page once, soon after the start; open the address that ggufkit "
    "printed. If you see this at the first try, stop ggufkit: another user may see the model"
)
_SAME_SITE: Final = ("", "same-origin", "none")  # of Sec-Fetch-Site; none: typed by the user


def new_token() -> str:
    """Return a random token for the address of the page."""
    return secrets.token_urlsafe(TOKEN_BYTES)


@dataclass(frozen=True)
class PageGuard:
    """Refuses requests before the page or a model is reached.

    `hosts` are the allowed values of the Host header, without ports; empty allows all, for a server
    that others may reach by names unknown here.
    """

    app: ASGIApp
    token: str
    hosts: frozenset[str]
    code: OpeningCode

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, without the token in its path, or answer with the refusal."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # no WebSockets: the connection is closed
        status, reason = self._refusal(scope)
        if reason:
            await _send_text(send, status, reason)
            return
        if scope["path"].startswith(OPENING_PATH):
            await self._open(scope, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": _with_headers(message.get("headers", ()))}
            await send(message)

        path = scope["path"].removeprefix(f"/{self.token}")
        if not path:  # relative addresses in the page need the slash
            await self._send_to_page(send, 307)
            return
        inner = {**scope, "path": path, "raw_path": path.encode(), "root_path": ""}
        await self.app(inner, receive, guarded)

    async def _open(self, scope: Scope, send: Send) -> None:
        """Send the browser to the page in exchange for the code."""
        code = scope["path"].removeprefix(OPENING_PATH)
        if scope["method"] == "GET" and self.code.take(code, scope):
            await self._send_to_page(send, 303)
        else:
            await _send_text(send, 403, _USED)

    async def _send_to_page(self, send: Send, status: int) -> None:
        await _send(send, status, b"", [(b"location", f"/{self.token}/".encode())])

    def _refusal(self, scope: Scope) -> tuple[int, str]:
        """Return the status and the reason to refuse a request, an empty reason to allow it."""
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get(b"host", "")
        if self.hosts and _without_port(host) not in self.hosts:
            return 421, "this server has another name; open the address that ggufkit printed"
        origin = headers.get(b"origin", "")
        if origin and origin.partition("://")[2] != host:
            return 403, "another page may not read this one"
        if headers.get(b"sec-fetch-site", "") not in _SAME_SITE:
            return 403, "another page may not read this one"
        if scope["method"] not in {"GET", "HEAD", "POST"}:
            return 405, "this server only shows models"
        token = scope["path"].partition("/")[2].partition("/")[0]
        is_opening = scope["path"].startswith(OPENING_PATH)  # with a code instead
        if not is_opening and not secrets.compare_digest(token.encode(), self.token.encode()):
            return 403, "the address needs its token; open the address that ggufkit printed"
        return 200, ""


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdecimal() else host).lower()


def _with_headers(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    own = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
    names = {name for name, _ in own}
    return [*(pair for pair in headers if pair[0].lower() not in names), *own]


async def _send_text(send: Send, status: int, text: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    await _send(send, status, f"{text}\n".encode(), headers)


async def _send(send: Send, status: int, body: bytes, extra: list[tuple[bytes, bytes]]) -> None:
    headers = _with_headers([*extra, (b"content-length", str(len(body)).encode())])
    start = {"type": "http.response.start", "status": status, "headers": headers}
    await send(start)
    await send({"type": "http.response.body", "body": body})
