"""Starts the server of the page on this machine, and opens a browser."""

from __future__ import annotations

import contextlib
import socket
import threading
import webbrowser
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ggufkit.errors import GGUFError
from ggufkit.frameworks.extras import library
from ggufkit.view.guard import ANY_ADDRESS, LOOPBACK, PageGuard, new_token
from ggufkit.view.routes import application
from ggufkit.view.shown_model import ShownModel

DEFAULT_HOST: Final = "127.0.0.1"
IDLE_CONNECTION: Final = 5  # seconds
WAITING_CONNECTIONS: Final = 256


class PortError(GGUFError, OSError):
    """The server cannot listen where it should."""


@dataclass(frozen=True)
class Address:
    """Where the server listens: a bound socket, and the token in the address of the page."""

    socket: socket.socket
    host: str
    token: str

    @property
    def port(self) -> int:
        """The port, chosen by the system if it was 0."""
        port: int = self.socket.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """The address of the page for a browser on this machine."""
        host = DEFAULT_HOST if self.host in ANY_ADDRESS else self.host
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{self.port}/{self.token}/"

    @property
    def is_open_to_others(self) -> bool:
        """Whether other machines may reach the server."""
        return self.host not in {"127.0.0.1", "::1", "localhost"}


def bound(host: str = DEFAULT_HOST, port: int = 0) -> Address:
    """Bind a socket; PortError if the port is taken, or the host is no address of this machine."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with contextlib.ExitStack() as opened:
            made = opened.enter_context(socket.socket(family, kind, protocol))
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(place)
            made.listen(WAITING_CONNECTIONS)
            opened.pop_all()  # stays open
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "this is not an address of this machine"
        raise PortError(
            f"cannot listen on {host} port {port}: {reason}",
            remedy="Use another port, or 0 for any that is free",
        ) from error
    return Address(made, host, new_token())


def guarded(models: Sequence[ShownModel], address: Address) -> PageGuard:
    """Return the application for an address, open only to those who have its token."""
    names = {*LOOPBACK, address.host.lower(), f"[{address.host.lower()}]"}
    hosts = frozenset() if address.host in ANY_ADDRESS else frozenset(names)
    return PageGuard(application(models), address.token, hosts)


def server_of(models: Sequence[ShownModel], address: Address) -> Any:  # noqa: ANN401 (uvicorn's)
    """Return the server for an address, not yet running."""
    uvicorn: Any = library("uvicorn", "view")
    config = uvicorn.Config(
        guarded(models, address),
        log_level="critical",
        access_log=False,
        lifespan="off",
        server_header=False,
        date_header=False,
        timeout_keep_alive=IDLE_CONNECTION,
        timeout_graceful_shutdown=1,
        ws="none",
    )
    return uvicorn.Server(config)


def serve(
    models: Sequence[ShownModel],
    address: Address,
    *,
    opens_browser: bool = True,
    started: Callable[[str], None] | None = None,
) -> None:
    """Serve the page until Ctrl-C or SIGTERM; `started` is called with its URL."""
    server = server_of(models, address)
    if started:
        started(address.url)
    if opens_browser:
        threading.Thread(target=webbrowser.open, args=(address.url,), daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):  # the way to stop it
        server.run(sockets=[address.socket])
