"""The code that opens the page in a browser: it stands in the browser's command line.

Every user of a machine can read the command lines of all processes, so the code is taken once,
soon after the start, and on Linux only from processes of the user who started the server. It
leads to the address of the page. A cookie would be sent to other ports of this machine too.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from starlette.types import Scope

VALID_SECONDS: Final = 300  # a browser that starts first may take long
_ROOT: Final = 0
_TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")  # of connections, on Linux
_OWNER_COLUMN: Final = 7


class OpeningCode:
    """A random code that is taken once."""

    def __init__(self, text: str) -> None:
        """Keep the code, and when it expires."""
        self.text = text
        self._expires = time.monotonic() + VALID_SECONDS
        self._is_used = False

    def take(self, code: str, scope: Scope) -> bool:
        """Return whether a request may open the page, which no later request may."""
        is_right = secrets.compare_digest(code.encode(), self.text.encode())
        is_late = self._is_used or time.monotonic() > self._expires
        if not is_right or is_late or not _is_own(owner_of(scope)):
            return False
        self._is_used = True
        return True


def _is_own(owner: int | None) -> bool:
    """Whether a connection comes from this user or root, or its owner is unknown."""
    return owner is None or owner in {_ROOT, os.getuid()}


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
