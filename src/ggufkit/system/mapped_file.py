"""Map files into memory for reading, and notice if they are changed or cut meanwhile."""

from __future__ import annotations

import atexit
import contextlib
import errno
import functools
import mmap
import os
import stat
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

import ggufkit._native as _native
from ggufkit.errors import ClosedError, FormatError
from ggufkit.system.descriptors import (
    BINARY,
    COPY_BYTES,
    ShortReadError,
    close,
    copy_in_kernel,
    naming,
    read_at,
    with_descriptors,
    write_at,
)

Bytes = npt.NDArray[np.uint8]
Data: TypeAlias = "bytes | MappedBytes"  # the whole content of a file, or encoded values

HEAD_BYTES: Final = 1 << 20  # identify a file: mostly the metadata
MAX_KEPT_BYTES: Final = 1 << 28  # of a closed file: 4 million tokens take half of it
REOPENED: Final = 64  # files sent by other processes stay open: they come again


# None on Windows: it does not let mapped files be cut.
_Guard: Final[Any] = getattr(_native, "MapGuard", None)


class MappedBytes(mmap.mmap):
    """The mapped content of a file; `shut` when its model was closed, which keeps its header.

    Closing cannot always unmap: NumPy arrays may still use the map. Data not yet decoded must not
    depend on that. If the file is cut meanwhile, the map reads as zeros instead of ending the
    process, and `is_whole` is false. Call `watch` before reading the map: another handler of
    SIGBUS, such as faulthandler's, may have been installed since.
    """

    shut = False
    head: bytes | None = None  # the beginning, for what was not decoded before closing

    def __init__(self, *_: object, **__: object) -> None:
        """Guard an existing map."""
        self.guard = _Guard(self) if _Guard else None
        _MAPS.add(self)

    def watch(self) -> None:
        """Handle bus errors in this map again, if another handler now takes them."""
        if self.guard:
            self.guard.renew()

    def close(self) -> None:
        """Unmap; BufferError while arrays use the map, which then stays guarded.

        The guard is removed first: another map may get the addresses right afterwards.
        """
        if self.guard:
            self.guard.release()
        try:
            super().close()
        except BufferError:
            self.guard = _Guard(self) if _Guard else None
            raise

    @property
    def is_whole(self) -> bool:
        """Whether all reads so far found their bytes, and the size of the file is the same."""
        return self.size() >= len(self) and not (self.guard and self.guard.lost)


@contextlib.contextmanager
def view(data: Data) -> Iterator[memoryview]:
    """Provide a view of the bytes.

    Of a closed file they are the bytes that it keeps. Raises ClosedError if it keeps none,
    FormatError if the file was cut meanwhile.
    """
    source = data.head if isinstance(data, MappedBytes) and data.shut else data
    if source is not None and not isinstance(source, MappedBytes):
        yield memoryview(source)
        return
    if not isinstance(source, MappedBytes):
        raise ClosedError(
            "the model was closed before this value was read",
            remedy="Read values before closing; `tolist()` decodes a whole array",
        )
    source.watch()
    try:
        yield memoryview(source)
    finally:
        if not source.is_whole:
            raise FormatError(
                "the file became shorter while it was in use",
                remedy="Run again, and do not change the input while it runs",
            )


def closed_error(path: Path) -> ClosedError:
    """Return the error of a file that was closed before it was read."""
    return ClosedError(f"{path} was closed", remedy="Read tensors before closing the model")


def changed_error(path: Path) -> FormatError:
    """Return the error of a file that changed since it was opened."""
    return FormatError(
        "the file changed while it was in use",
        remedy="Run again, and do not change the input while it runs",
        path=str(path),
    )


def digest_of(data: memoryview) -> str:
    """Return the SHA-256 of bytes in hexadecimal."""
    import hashlib  # noqa: PLC0415 (loads OpenSSL)

    return hashlib.sha256(data).hexdigest()


class MappedFile:
    """A file that is open for reading and mapped into memory.

    `view` reads the map: this is free, but yields zeros if the file is cut afterwards; `read` and
    `copy` use the descriptor and notice if the file changes. Code that reads `data` does so inside
    `unchanged`. All raise ClosedError after `close`. A file that is replaced, renamed or deleted
    stays readable as it was.
    """

    def __init__(self, path: Path) -> None:
        """Map the whole file; OSError as from `open`, or if it is not a regular file."""
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for its writer
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        self.path = path
        self._descriptor = with_descriptors(lambda: os.open(path, os.O_RDONLY | BINARY))
        self._release = weakref.finalize(self, close, self._descriptor)
        self._lock = threading.Lock()
        self.status: os.stat_result = os.fstat(self._descriptor)  # when it was opened
        self.nbytes: int = self.status.st_size
        self.data: Data = b""
        if self.nbytes:
            self.data = with_descriptors(self._map)
        self.closed: bool = False
        self.kept_bytes = 0  # of the beginning that stay readable after `close`

    def _map(self) -> MappedBytes:
        return MappedBytes(self._descriptor, self.nbytes, access=mmap.ACCESS_READ)

    def private(self) -> MappedBytes:
        """Return a map of one's own that can be written to; the file does not change."""
        with self.borrowed() as descriptor:
            return MappedBytes(descriptor, self.nbytes, access=mmap.ACCESS_COPY)

    def show(self, head: bytes) -> None:
        """Let `data` and `view` begin with other bytes; the file does not change.

        `read` and `copy` still return the bytes of the file.
        """
        changed = self.private()
        changed[: len(head)] = head
        before, self.data = self.data, changed
        if isinstance(before, MappedBytes):
            before.close()

    def view(self, offset: int, nbytes: int) -> Bytes:
        """Return a view of the map; FormatError if the file changed since it was opened."""
        self._require_unchanged()
        if nbytes == 0:
            return np.empty(0, np.uint8)
        if offset + nbytes > self.nbytes:  # the file was opened although it is cut
            raise FormatError(
                f"the file ends at byte {self.nbytes:,}, before byte {offset + nbytes:,}",
                remedy="Download the rest of the file",
                path=str(self.path),
            )
        self._watch()
        try:
            array = np.frombuffer(self.data, np.uint8, nbytes, offset)
        except ValueError:  # another thread may have closed the file just now
            if self.closed:
                raise closed_error(self.path) from None
            raise
        array.flags.writeable = False
        return array

    def read(self, offset: int, nbytes: int) -> Bytes:
        """Return bytes read from the file; FormatError if it changed since it was opened."""
        try:
            with self.borrowed() as descriptor, naming(self.path):
                data = read_at(descriptor, nbytes, offset)
        except ShortReadError:
            raise changed_error(self.path) from None
        return np.frombuffer(data, np.uint8)

    def copy(self, offset: int, nbytes: int, target: int, target_offset: int) -> None:
        """Copy bytes to the descriptor `target`; FormatError if the file changed since opening."""
        with self.borrowed() as descriptor:
            copied = copy_in_kernel(descriptor, offset, target, target_offset, nbytes)
        for position in range(copied, nbytes, COPY_BYTES):
            data = self.read(offset + position, min(COPY_BYTES, nbytes - position))
            write_at(target, data.data, target_offset + position)

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[None]:
        """Allow reading `data`; FormatError if the file changed since it was opened."""
        self._watch()
        try:
            yield
        except GeneratorExit:  # the reader gave up, and the file may be closed already
            return
        except BaseException:
            self._require_whole()
            raise
        self._require_whole()

    def _require_whole(self) -> None:
        self._require_unchanged()
        if isinstance(self.data, MappedBytes) and not self.data.is_whole:
            raise changed_error(self.path)

    def _require_unchanged(self) -> None:
        with self.borrowed():
            pass

    def __reduce__(self) -> tuple[Callable[..., MappedFile], tuple[str, tuple[object, ...]]]:
        """Pickle the path and an identity that shows if the file found there is the same."""
        return _reopened, (os.fspath(self.path.absolute()), self.identity)

    @functools.cached_property
    def identity(self) -> tuple[object, ...]:
        """Size, time of the last change, and digest of the beginning, to compare on any machine."""
        head = self.read(0, min(self.nbytes, HEAD_BYTES))
        return self.nbytes, self.status.st_mtime_ns, digest_of(head.data)

    def same_file(self, path: Path) -> bool:
        """Whether `path` leads to this same file, under any name."""
        with contextlib.suppress(OSError):
            return os.path.samestat(path.stat(), self.status)
        return False

    def close(self) -> None:
        """Close and unmap; if arrays still use the map, the last of them unmaps it.

        The first `kept_bytes` are copied for values that were not decoded yet, unless they are
        more than `MAX_KEPT_BYTES`.
        """
        with self._lock:
            if self.closed:
                return
            self.closed = True
            self._release()
        if isinstance(self.data, MappedBytes):
            self.data.watch()
            is_short = self.kept_bytes <= MAX_KEPT_BYTES
            head = self.data[: self.kept_bytes] if is_short else None
            with contextlib.suppress(OSError):  # an output that was made of this file is whole
                self.data.head = head if self.data.is_whole else None
            self.data.shut = True
            with contextlib.suppress(BufferError):
                self.data.close()

    def _watch(self) -> None:
        if isinstance(self.data, MappedBytes):
            self.data.watch()

    @contextlib.contextmanager
    def borrowed(self) -> Iterator[int]:
        """Provide each thread its own descriptor: a closed number may be reused."""
        with self._lock:
            if self.closed:
                raise closed_error(self.path)
            descriptor = with_descriptors(lambda: os.dup(self._descriptor))
        try:
            yield descriptor
            with naming(self.path):
                now = os.fstat(descriptor)
        finally:
            close(descriptor)
        if (now.st_size, now.st_mtime_ns) != (self.nbytes, self.status.st_mtime_ns):
            raise changed_error(self.path)


@functools.lru_cache(maxsize=REOPENED)
def _reopened(path: str, identity: tuple[object, ...]) -> MappedFile:
    """Open a file that another process has open; FormatError if it is now a different one."""
    remedy = (
        "Give all processes the same file under the same path, and do not change it while they run"
    )
    try:
        file = MappedFile(Path(path))
    except OSError as error:
        message = f"cannot be opened on the machine that does the work: {error.strerror}"
        raise FormatError(message, remedy=remedy, path=path) from error
    if file.identity == identity:
        return file
    raise FormatError("the file was replaced since the start", remedy=remedy, path=path)


_MAPS: Final[weakref.WeakSet[MappedBytes]] = weakref.WeakSet()


def _forget_guards() -> None:
    """Drop all guards before the native core, which makes them, is gone: tensors outlive it."""
    _reopened.cache_clear()
    for data in list(_MAPS):
        if data.guard:
            data.guard.release()
            data.guard = None


atexit.register(_forget_guards)
