"""Starts the server of the page on this machine, and opens a browser."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ggufkit.errors import GGUFError
from ggufkit.frameworks.extras import library
from ggufkit.system.cancellation import shield
from ggufkit.system.descriptors import allow_descriptors
from ggufkit.system.threads import GRACE_SECONDS
from ggufkit.view.page_model import PageModel
from ggufkit.view.serving.guard import (
    ANY_ADDRESS,
    LOOPBACK,
    OPENING_PATH,
    OpeningCode,
    PageGuard,
    new_token,
)
from ggufkit.view.serving.routes import application

if TYPE_CHECKING:
    from ggufkit.view.edit_page import Editor

DEFAULT_HOST: Final = "127.0.0.1"
IDLE_CONNECTION: Final = 5  # seconds
SWITCH_SECONDS: Final = 0.0005  # for which a thread that works keeps the others waiting
WAITING_CONNECTIONS: Final = 128  # waiting to be accepted, in addition to open ones


class PortError(GGUFError, OSError):
    """The server cannot listen where it should."""


@dataclass(frozen=True)
class Address:
    """Where the server listens: a bound socket, the page's token, and the code for the browser."""

    socket: socket.socket
    host: str
    token: str
    code: OpeningCode

    @property
    def port(self) -> int:
        """The port, chosen by the system if it was 0."""
        port: int = self.socket.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """The address of the page for a browser on this machine."""
        return f"{self._root}/{self.token}/"

    @property
    def opening_url(self) -> str:
        """The address that opens the page once: every user can read a browser's command line."""
        return f"{self._root}{OPENING_PATH}{self.code.text}"

    @property
    def _root(self) -> str:
        host = DEFAULT_HOST if self.host in ANY_ADDRESS else self.host
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"


def is_open_to_others(host: str) -> bool:
    """Whether other machines may reach a server that listens on this address."""
    return host not in {"127.0.0.1", "::1", "localhost"}


def bound(host: str = DEFAULT_HOST, port: int = 0) -> Address:
    """Bind a socket; PortError if the port is taken, or the host is no address of this machine."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with contextlib.ExitStack() as opened:
            server_socket = opened.enter_context(socket.socket(family, kind, protocol))
            server_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server_socket.bind(place)
            server_socket.listen(WAITING_CONNECTIONS)
            opened.pop_all()  # stays open
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "this is not an address of this machine"
        raise PortError(
            f"cannot listen on {host} port {port}: {reason}",
            remedy="Use another port, or 0 for any that is free",
        ) from error
    return Address(server_socket, host, new_token(), OpeningCode(new_token()))


def guarded(
    models: Sequence[PageModel], address: Address, editor: Editor | None = None
) -> PageGuard:
    """Return the application for an address, open only to those who have its token."""
    names = {*LOOPBACK, address.host.lower(), f"[{address.host.lower()}]"}
    hosts = frozenset() if address.host in ANY_ADDRESS else frozenset(names)
    return PageGuard(application(models, editor), address.token, hosts, address.code)


def server_of(models: Sequence[PageModel], address: Address, editor: Editor | None = None) -> Any:  # noqa: ANN401 (uvicorn's)
    """Return the server for an address, not yet running; only an `editor` lets it change files."""
    uvicorn: Any = library("uvicorn", "view")
    from ggufkit.view.serving import connections  # noqa: PLC0415 (needs the extra)

    config = uvicorn.Config(
        guarded(models, address, editor),
        http=connections.LimitedConnection,
        log_level="critical",
        access_log=False,
        lifespan="off",
        server_header=False,
        date_header=False,
        backlog=WAITING_CONNECTIONS,
        timeout_keep_alive=IDLE_CONNECTION,
        timeout_graceful_shutdown=GRACE_SECONDS,
        ws="none",
    )
    return connections.PageServer(config)


def serve(
    models: list[PageModel],
    address: Address,
    *,
    edits: bool = False,
    opens_browser: bool = True,
    started: Callable[[str], None] | None = None,
) -> None:
    """Serve the page until Ctrl-C or SIGTERM; `started` is called with its URL.

    With `edits` the page can edit the models' files.
    """
    allow_descriptors()
    sys.setswitchinterval(SWITCH_SECONDS)
    for page in models:
        page.prepare()
    gc.freeze()  # a pass over a million tensors would stop all requests for a second
    editor = None
    if edits:
        from ggufkit.view.edit_page import Editor  # noqa: PLC0415 (most pages only show)

        editor = Editor(models)
    server = server_of(models, address, editor)
    if started:
        started(address.url)
    if opens_browser:
        threading.Thread(target=webbrowser.open, args=(address.opening_url,), daemon=True).start()
    with shield():  # against SIGTERM, which would leave the files of models
        with contextlib.suppress(KeyboardInterrupt):  # the way to stop it
            server.run(sockets=[address.socket])
        for model in models:
            model.resources.close()
    if server.is_working:
        os._exit(0)  # Python would wait for the threads
