"""A cache of headers of remote files on this disk, by the SHA-256 of the whole file.

The header of a file with a known digest never changes, so no request is needed for it. The folder
belongs to this user alone and its size is limited. A cached header is compared with its digest, and
then parsed as carefully as any file.
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

from ggufkit.system.cancellation import shield

MAX_BYTES: Final = 256 << 20  # of all headers; the oldest go first
MAX_HEADER_BYTES: Final = 64 << 20  # of one: the largest known has 40 MB
DISABLED: Final = "GGUFKIT_NO_CACHE"  # set: nothing is stored or read
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_CHECK_BYTES: Final = hashlib.sha256().digest_size
_PRIVATE: Final = 0o700


def folder() -> Path:
    """Return the folder of the cache, in the user's folder of caches."""
    caches = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    home = Path.home()
    default = home / "Library" / "Caches" if sys.platform == "darwin" else home / ".cache"
    return (Path(caches) if caches else default) / "ggufkit" / "headers"


def lookup(sha256: str) -> bytes:
    """Return the header of the file with this digest, b"" if it is not in the cache."""
    if not _is_usable(sha256):
        return b""
    with contextlib.suppress(OSError, ValueError):
        path = folder() / sha256
        with path.open("rb") as file:
            if not _is_own(os.fstat(file.fileno())):
                return b""
            content = file.read(MAX_HEADER_BYTES + _CHECK_BYTES + 1)
        check, data = content[:_CHECK_BYTES], content[_CHECK_BYTES:]
        if len(data) <= MAX_HEADER_BYTES and hashlib.sha256(data).digest() == check:
            os.utime(path)  # it was used
            return data
        path.unlink()
    return b""


def store(sha256: str, data: bytes) -> None:
    """Store the header of the file with this digest; ignore errors of the disk."""
    if not data or len(data) > MAX_HEADER_BYTES or not _is_usable(sha256):
        return
    with shield(), contextlib.suppress(OSError):
        cache = folder()
        cache.parent.mkdir(parents=True, exist_ok=True)
        cache.mkdir(mode=_PRIVATE, exist_ok=True)
        if not _is_own(cache.lstat(), is_folder=True):
            return
        descriptor, name = tempfile.mkstemp(prefix="new-", dir=cache)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(hashlib.sha256(data).digest())
                file.write(data)
            Path(name).replace(cache / sha256)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        _remove_oldest(cache)


def _is_usable(sha256: str) -> bool:
    return bool(_DIGEST.fullmatch(sha256)) and not os.environ.get(DISABLED)


def _is_own(status: os.stat_result, *, is_folder: bool = False) -> bool:
    """Whether a file or folder is of its kind and this user's."""
    is_kind = stat.S_ISDIR(status.st_mode) if is_folder else stat.S_ISREG(status.st_mode)
    return is_kind and (not hasattr(os, "getuid") or status.st_uid == os.getuid())


def _remove_oldest(cache: Path) -> None:
    """Remove the headers used longest ago until the rest is small enough."""
    entries = []
    for path in cache.iterdir():
        with contextlib.suppress(OSError):  # another process removed it
            status = path.lstat()
            entries.append((status.st_mtime_ns, status.st_size, path))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= MAX_BYTES:
            return
        path.unlink(missing_ok=True)
        total -= size
