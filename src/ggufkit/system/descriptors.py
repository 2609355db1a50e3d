"""Read, write and copy bytes at offsets, lock files, and sync folders.

Each call that only some platforms have is here, next to its fallback.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import importlib
import os
import re
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from ggufkit.errors import RemoteError

T = TypeVar("T")
AnyPath: TypeAlias = "str | bytes | os.PathLike[str] | os.PathLike[bytes]"

COPY_BYTES: Final = 1 << 20  # per read if the kernel cannot copy by itself
# Open at once: two for each of 65,535 shards, and the most that macOS allows.
MANY_FILES: Final = (1 << 18, 10240)
BINARY: Final = getattr(os, "O_BINARY", 0)
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SECRETS: Final = re.compile(r"(?<=//)[^/@]*@|[?#].*", re.DOTALL)
_LOCKED: Final = {errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK}
_seek_lock = threading.Lock()  # for platforms without positional reads and writes

# Tests set these to None or False to force the fallbacks.
copy_file_range: Any = getattr(os, "copy_file_range", None)
positional: bool = hasattr(os, "pwrite")
renames_open_files: bool = os.name != "nt"
_SYNC_FILE_RANGE_WRITE: Final = 2  # linux/fs.h


def system_module(name: str) -> Any:  # noqa: ANN401 (a module)
    """Return a module of Python that only some systems have, else None."""
    with contextlib.suppress(ImportError):
        return importlib.import_module(name)
    return None


def c_function(name: str, *arguments: object) -> Any:  # noqa: ANN401 (a function of C)
    """Return a function of the C library by its name and the types of its arguments, or None."""
    with contextlib.suppress(AttributeError, OSError, TypeError):
        function = getattr(ctypes.CDLL(None, use_errno=True), name)
        function.argtypes = arguments
        return function
    return None


fcntl: Any = system_module("fcntl")  # not on Windows
resource: Any = system_module("resource")
msvcrt: Any = system_module("msvcrt")
sync_file_range: Any = c_function(  # only on Linux
    "sync_file_range", ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint
)


def as_path(path: AnyPath) -> Path:
    """Return any kind of path as a Path; an empty path is an error, not the current folder.

    RemoteError for a URL, which a Path would take for folders.
    """
    name = os.fsdecode(path)
    if _URL.match(name) and not os.path.lexists(name):
        public = _SECRETS.sub("", name)
        raise RemoteError(
            f"{public} is on a server, and here a file on this disk is needed",
            remedy=f"Models can be copied to this disk: ggufkit copy {public} model.gguf",
        )
    if not name:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    return Path(name)


def with_descriptors(act: Callable[[], T]) -> T:
    """Return the result of `act`; raise the limit on open files if it is too low.

    Each shard of a set takes two descriptors; systems allow 256 or 1024 by default.
    """
    try:
        return act()
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
        if not allow_descriptors():
            reason = (
                f"{error.strerror}: raise the limit (`ulimit -n`), "
                "or merge the shards on a machine with a higher limit"
            )
            raise OSError(error.errno, reason, error.filename) from None
    return act()


def allow_descriptors() -> bool:
    """Raise the limit as far as the system allows; return whether it is higher than before."""
    if resource is None:
        return False
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    for count in MANY_FILES:
        limit = count if most == resource.RLIM_INFINITY else min(most, count)
        if limit > before:
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))
                return True
    return False


def close(descriptor: int) -> None:
    """Close a file that was read, synced or given up: an error no longer matters."""
    with contextlib.suppress(OSError):
        os.close(descriptor)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add the file's name to errors of the system: calls on descriptors lack it."""
    try:
        yield
    except OSError as error:
        if error.errno is not None:
            error.filename = error.filename or str(path)
        raise


class ShortReadError(OSError):
    """A file ended before the expected bytes."""


def read_at(descriptor: int, nbytes: int, offset: int) -> bytes:
    """Read exactly `nbytes` at `offset`; ShortReadError if the file ends before.

    All reads through descriptors come here, so that every short read is found.
    """
    parts: list[bytes] = []
    while nbytes:
        data = _read_some(descriptor, nbytes, offset)
        if not data:
            raise ShortReadError(errno.EIO, "the file was cut while it was read")
        parts.append(data)
        offset += len(data)
        nbytes -= len(data)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _read_some(descriptor: int, nbytes: int, offset: int) -> bytes:
    if positional:
        return os.pread(descriptor, nbytes, offset)
    with _seek_lock:
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.read(descriptor, nbytes)


def write_at(descriptor: int, data: bytes | memoryview, offset: int) -> None:
    """Write all of `data` at `offset`, in as many calls as needed."""
    view = memoryview(data).cast("B")
    while view:
        written = _write_some(descriptor, view, offset)
        view = view[written:]
        offset += written


def _write_some(descriptor: int, view: memoryview, offset: int) -> int:
    if positional:
        return os.pwrite(descriptor, view, offset)
    with _seek_lock:
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.write(descriptor, view)


def checksum_at(descriptor: int, offset: int, nbytes: int) -> int:
    """Return the checksum of `nbytes` at `offset`; ShortReadError as in `read_at`."""
    checksum = 0
    for start in range(offset, offset + nbytes, COPY_BYTES):
        data = read_at(descriptor, min(COPY_BYTES, offset + nbytes - start), start)
        checksum = zlib.crc32(data, checksum)
    return checksum


def begin_writeback(descriptor: int, offset: int, nbytes: int) -> None:
    """Ask the kernel to start writing bytes to disk, so that the final sync is short."""
    if sync_file_range:
        sync_file_range(descriptor, offset, nbytes, _SYNC_FILE_RANGE_WRITE)


def copy_at(source: int, source_offset: int, target: int, target_offset: int, nbytes: int) -> None:
    """Copy bytes between descriptors, in the kernel where the platform can.

    Raises ShortReadError if the source ends before.
    """
    copied = copy_in_kernel(source, source_offset, target, target_offset, nbytes)
    while copied < nbytes:
        data = read_at(source, min(COPY_BYTES, nbytes - copied), source_offset + copied)
        write_at(target, data, target_offset + copied)
        copied += len(data)


def copy_in_kernel(
    source: int, source_offset: int, target: int, target_offset: int, nbytes: int
) -> int:
    """Return the bytes that the kernel copied before it failed, or the source ended."""
    copied = 0
    while copy_file_range and copied < nbytes:
        try:
            count = copy_file_range(
                source, target, nbytes - copied, source_offset + copied, target_offset + copied
            )
        except OSError:  # other file system, old kernel, special file: the caller copies,
            return copied  # and raises real errors (a full disk)
        if count == 0:
            return copied
        copied += count
    return copied


def lock(descriptor: int) -> bool | None:
    """Lock an open file: True if locked, False if another holds it, None without file locks.

    The lock ends with the descriptor, so at the latest with the process.
    """
    try:
        if fcntl:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        elif msvcrt:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            return None
    except OSError as error:
        return False if error.errno in _LOCKED else None
    return True


def is_locked(descriptor: int) -> bool:
    """Whether another process has locked an open file, if the platform can tell."""
    if not fcntl:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    except OSError as error:
        return error.errno in _LOCKED
    return False


def sync_folder(folder: Path) -> None:
    """Make renames in `folder` durable, if folders can be synced."""
    try:
        descriptor = with_descriptors(lambda: os.open(folder, os.O_RDONLY))
    except OSError:  # Windows
        return
    try:
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
    finally:
        close(descriptor)
