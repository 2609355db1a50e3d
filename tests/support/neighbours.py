"""Entries of every kind that another user may put under a hidden name."""

from __future__ import annotations

import os
import socket
import stat
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

KEPT: Final = b"keep me"
HUGE: Final = 1 << 40  # bytes of a sparse file
NOBODY: Final = 65534  # a user whom root can make owner of a file


class Neighbour(NamedTuple):
    """An entry that was put somewhere, and what a message must say of it."""

    path: Path
    reason: str
    precious: Path

    def is_untouched(self) -> bool:
        """Return whether the entry still exists and its target is unchanged."""
        return os.path.lexists(self.path) and content(self.precious) == KEPT


def content(path: Path) -> bytes:
    """Return the bytes of a file, or of the only file in a folder."""
    return path.read_bytes() if path.is_file() else (path / "file").read_bytes()


def _link(path: Path, precious: Path) -> None:
    precious.write_bytes(KEPT)
    path.symlink_to(precious)


def _link_to_folder(path: Path, precious: Path) -> None:
    _folder(precious, precious)
    path.symlink_to(precious)


def _hard_link(path: Path, precious: Path) -> None:
    precious.write_bytes(KEPT)
    path.hardlink_to(precious)


def _folder(path: Path, precious: Path) -> None:
    precious.mkdir()
    (precious / "file").write_bytes(KEPT)
    if path != precious:
        precious.rename(path)


def _pipe(path: Path, precious: Path) -> None:
    precious.write_bytes(KEPT)
    os.mkfifo(path)


def _socket(path: Path, precious: Path) -> None:
    precious.write_bytes(KEPT)
    before = Path.cwd()
    os.chdir(path.parent)  # the path of a socket must be short
    try:
        with socket.socket(socket.AF_UNIX) as opened:
            opened.bind(path.name)
    finally:
        os.chdir(before)


def _device(path: Path, precious: Path) -> None:
    precious.write_bytes(KEPT)
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 7))  # /dev/full


def _of_another(path: Path, precious: Path) -> None:
    precious.write_bytes(KEPT)
    path.write_bytes(b"a stranger's words")
    path.chmod(0o666)
    os.chown(path, NOBODY, NOBODY)


KINDS: Final[dict[str, tuple[Callable[[Path, Path], None], str]]] = {
    "link": (_link, "it is a link"),
    "link to a folder": (_link_to_folder, "it is a link"),
    "hard link": (_hard_link, "it is a hard link"),
    "folder": (_folder, "it is a folder"),
    "pipe": (_pipe, "it is a pipe"),
    "socket": (_socket, "it is a socket"),
    "device": (_device, "it is a device"),
    "file of another user": (_of_another, "it belongs to another user"),
}
NEED_ROOT: Final = {"device", "file of another user"}
POSSIBLE: Final = [
    kind for kind in KINDS if kind not in NEED_ROOT or getattr(os, "geteuid", lambda: 1)() == 0
]


def place(path: Path, kind: str) -> Neighbour:
    """Put an entry of a kind at `path`."""
    precious = path.with_name("precious")
    make, reason = KINDS[kind]
    make(path, precious)
    if kind == "folder":
        precious = path
    return Neighbour(path, reason, precious)


def as_another(act: Callable[[], object]) -> None:
    """As root, run a function as another user in a separate process; raise its errors here."""
    hear, tell = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which the child has not
        child = os.fork()
    if child == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        try:
            act()
        except BaseException:  # noqa: BLE001 (told to the parent)
            os.write(tell, traceback.format_exc().encode())
        os._exit(0)
    os.close(tell)
    os.waitpid(child, 0)
    errors = os.read(hear, 1 << 16).decode()
    os.close(hear)
    assert not errors, errors
