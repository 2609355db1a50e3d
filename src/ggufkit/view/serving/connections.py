"""Limits for each connection, so that slow or silent clients do not keep the page from others.

`PageServer` also ends within a second, whatever its connections do.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from uvicorn import Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from ggufkit.system.sandbox import end_servants

if TYPE_CHECKING:
    import socket

    from starlette.types import Receive, Scope, Send

MAX_CONNECTIONS: Final = 100  # a browser opens six; some systems give a process 256 files
YOUNG_SECONDS: Final = 0.05  # for the first request of a connection to be read
WAIT_SECONDS: Final = 10.0  # for the headers of a request, and for a client to take its answer


class PageServer(Server):
    """A server that does not wait for the work of requests when it ends."""

    # Whether a request was unanswered at the end; its thread cannot be stopped.
    is_working: bool = False

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the work of servants, then the connections."""
        end_servants()
        await super().shutdown(sockets)
        self.is_working = bool(self.server_state.tasks)


class LimitedConnection(H11Protocol):
    """A connection that is closed when it neither sends a whole request nor takes its answer.

    Beyond MAX_CONNECTIONS the oldest is closed, first among those whose requests lack the token.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Count the requests that reach the application."""
        super().__init__(*arguments, **options)
        self._application = self.app
        self.app: Any = self._count_request
        self._begun = 0  # requests
        self.running: int = 0
        token: str = getattr(self.config.app, "token", "")
        self._start = f"/{token}/"  # of the page's own requests
        self.is_own: bool = False  # whether the last request was one
        self._begun_before = 0  # at the last look
        self._unsent_before = 0
        self.opened: float = self.loop.time()
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock, and make room when the first request can have come."""
        super().connection_made(transport)
        self._timer = self.loop.call_later(WAIT_SECONDS, self._look)
        self.loop.call_later(YOUNG_SECONDS, self._make_room)

    def _make_room(self) -> None:
        all_connections: Any = self.connections  # made by this class, which uvicorn does not know
        connections = [one for one in all_connections if not one.transport.is_closing()]
        if len(connections) > MAX_CONNECTIONS:
            # Those opened after this one may still be sending their first request.
            first = min(connections, key=lambda o: (o.opened > self.opened, o.is_own, o.opened))
            first.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        if self._timer:
            self._timer.cancel()
        super().connection_lost(exc)

    async def _count_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._begun += 1
        self.running += 1
        self.is_own = scope["path"].startswith(self._start)
        try:
            await self._application(scope, receive, send)
        finally:
            self.running -= 1

    def _look(self) -> None:
        """Close the connection if nothing went on since the last look."""
        unsent = self.transport.get_write_buffer_size()
        is_stuck = 0 < self._unsent_before <= unsent
        is_silent = not unsent and not self.running and self._begun == self._begun_before
        if is_stuck or is_silent:
            self.transport.abort()
            return
        self._begun_before, self._unsent_before = self._begun, unsent
        self._timer = self.loop.call_later(WAIT_SECONDS, self._look)
