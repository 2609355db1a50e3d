"""Beginnings of remote files by the SHA-256 of the whole file, kept on disk between commands.

Of a file with a known digest the beginning never changes, so no request is needed for it. The
folder is this user's alone and bounded; what is read from it is checked against its own digest and
then treated as the bytes of any file are.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import sys
import tempfile
from pathlib import Path
from typing import Final

MOST_BYTES: Final = 256 << 20  # of all beginnings together; the oldest go first
MOST_EACH: Final = 64 << 20  # of one: the largest known header has 40 MB
DISABLED: Final = "GGUFKIT_NO_CACHE"  # set: nothing is kept or read
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_CHECK_BYTES: Final = hashlib.sha256().digest_size
_PRIVATE: Final = 0o700


def folder() -> Path:
    """Return the folder of beginnings, in the user's folder of caches."""
    named = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    home = Path.home()
    usual = home / "Library" / "Caches" if sys.platform == "darwin" else home / ".cache"
    return (Path(named) if named else usual) / "ggufkit" / "headers"


def recall(sha256: str) -> bytes:
    """Return the beginning of the file with this digest, b"" if none is kept."""
    if not _is_usable(sha256):
        return b""
    with contextlib.suppress(OSError, ValueError):
        path = folder() / sha256
        with path.open("rb") as file:
            if not _is_own(os.fstat(file.fileno())):
                return b""
            content = file.read(MOST_EACH + _CHECK_BYTES + 1)
        check, data = content[:_CHECK_BYTES], content[_CHECK_BYTES:]
        if len(data) <= MOST_EACH and hashlib.sha256(data).digest() == check:
            os.utime(path)  # it was used
            return data
        path.unlink()
    return b""


def keep(sha256: str, data: bytes) -> None:
    """Keep the beginning of the file with this digest; a disk that cannot keep it is no error."""
    if not data or len(data) > MOST_EACH or not _is_usable(sha256):
        return
    with contextlib.suppress(OSError):
        place = folder()
        place.parent.mkdir(parents=True, exist_ok=True)
        place.mkdir(mode=_PRIVATE, exist_ok=True)
        if not _is_own(place.lstat(), is_folder=True):
            return
        descriptor, name = tempfile.mkstemp(prefix="new-", dir=place)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(hashlib.sha256(data).digest())
                file.write(data)
            Path(name).replace(place / sha256)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        _forget_oldest(place)


def _is_usable(sha256: str) -> bool:
    return bool(_DIGEST.fullmatch(sha256)) and not os.environ.get(DISABLED)


def _is_own(status: os.stat_result, *, is_folder: bool = False) -> bool:
    """Whether a file or folder is of its kind and this user's."""
    is_kind = stat.S_ISDIR(status.st_mode) if is_folder else stat.S_ISREG(status.st_mode)
    return is_kind and (not hasattr(os, "getuid") or status.st_uid == os.getuid())


def _forget_oldest(place: Path) -> None:
    """Remove the beginnings used longest ago until the rest is small enough."""
    found = []
    for path in place.iterdir():
        with contextlib.suppress(OSError):  # another process removed it
            status = path.lstat()
            found.append((status.st_mtime_ns, status.st_size, path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= MOST_BYTES:
            return
        path.unlink(missing_ok=True)
        total -= size
