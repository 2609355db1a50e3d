"""Files mapped into memory for reading, which notice when they are changed or cut meanwhile."""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import mmap
import os
import stat
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

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
    fill_from,
    naming,
    read_at,
    with_descriptors,
    write_at,
)

Bytes = npt.NDArray[np.uint8]
Data: TypeAlias = "bytes | MappedBytes"  # the whole content of a file, or encoded values

HEAD_BYTES: Final = 1 << 20  # of a file tell it from others: the metadata, mostly
REOPENED: Final = 64  # files that travelled here are kept open, for they come again


# None on Windows, which keeps mapped files from being cut.
_Guard: Final[Any] = getattr(_native, "MapGuard", None)


class MappedBytes(mmap.mmap):
    """The mapped content of a file; `shut` when its model was closed.

    Closing cannot always unmap, for NumPy arrays may still look into the map. What is not decoded
    yet must not depend on that. Where the file is cut meanwhile, the map reads as zeros instead of
    ending the process, and `is_whole` says so. Call `watch` before looking into the map: another
    handler of SIGBUS, such as faulthandler's, may have been installed since.
    """

    shut = False

    def __init__(self, *_: object, **__: object) -> None:
        """Guard the map, which is made already."""
        self.guard = _Guard(self) if _Guard else None

    def watch(self) -> None:
        """Take bus errors in this map again, if another handler takes them now."""
        if self.guard:
            self.guard.renew()

    def close(self) -> None:
        """Unmap; BufferError while arrays look into the map, which stays guarded then.

        The guard goes first, for the addresses may be those of another map right afterwards.
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
        """Whether all bytes could be read since, and are still there."""
        return self.size() >= len(self) and not (self.guard and self.guard.lost)


@contextlib.contextmanager
def view(data: Data) -> Iterator[memoryview]:
    """Lend a view of the bytes.

    Raises ClosedError when their model was closed, FormatError if their file was cut meanwhile.
    """
    if not isinstance(data, MappedBytes):
        yield memoryview(data)
        return
    if data.shut:
        raise ClosedError(
            "the model was closed before this value was read",
            remedy="Read values before closing; `tolist()` decodes a whole array",
        )
    data.watch()
    try:
        yield memoryview(data)
    finally:
        if not data.is_whole:
            raise FormatError(
                "the file became shorter while it was in use",
                remedy="Run again, and do not change the input while it runs",
            )


class Identity(NamedTuple):
    """Size, time of the last change, and a digest of how the file begins."""

    nbytes: int
    modified: int
    head: str


class MappedFile:
    """A file that is open for reading and mapped into memory.

    `view` looks into the map, which is free, but reads as zeros where the file is cut afterwards;
    `read` and `copy` go through the descriptor and notice when the file changes. What looks into
    `data` does so inside `unchanged`. All raise ClosedError after `close`. A file that is replaced,
    renamed or deleted stays readable as it was.
    """

    def __init__(self, path: Path) -> None:
        """Map the whole file; OSError as `open` raises it, or for what is no regular file."""
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for its writer
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        self.path = path
        self._descriptor = with_descriptors(lambda: os.open(path, os.O_RDONLY | BINARY))
        self._release = weakref.finalize(self, close, self._descriptor)
        self._lock = threading.Lock()
        self._opened = os.fstat(self._descriptor)
        self.nbytes = self._opened.st_size
        self.data: Data = b""
        if self.nbytes:
            self.data = with_descriptors(self._map)
        self.closed = False

    def _map(self) -> MappedBytes:
        return MappedBytes(self._descriptor, self.nbytes, access=mmap.ACCESS_READ)

    def show(self, head: bytes) -> None:
        """Have `data` and `view` begin with other bytes than the file, which is not changed.

        What is read and copied through the descriptor is the file's own.
        """
        with self.borrowed() as descriptor:
            changed = MappedBytes(descriptor, self.nbytes, access=mmap.ACCESS_COPY)
        changed[: len(head)] = head
        before, self.data = self.data, changed
        if isinstance(before, MappedBytes):
            before.close()

    def view(self, offset: int, nbytes: int) -> Bytes:
        """Return a view of the map; FormatError if the file changed since it was opened."""
        with self.borrowed():
            pass
        if nbytes == 0:
            return np.empty(0, np.uint8)
        if offset + nbytes > self.nbytes:  # as of a file that was opened although it is cut
            raise FormatError(
                f"the file ends at byte {self.nbytes:,}, before byte {offset + nbytes:,}",
                remedy="Download the rest of the file",
                path=str(self.path),
            )
        self._watch()
        array = np.frombuffer(self.data, np.uint8, nbytes, offset)
        array.flags.writeable = False
        return array

    def read(self, offset: int, nbytes: int) -> Bytes:
        """Return bytes read from the file; FormatError if it changed since it was opened."""
        with self.borrowed() as descriptor, self._reading():
            data = read_at(descriptor, nbytes, offset)
        return np.frombuffer(data, np.uint8)

    def fill(self, parts: Iterable[tuple[int, int, list[Bytes]]]) -> None:
        """Read offset, count and the arrays for so many bytes of each part; errors as `read`."""
        with self.borrowed() as descriptor, self._reading():
            for part in parts:
                fill_from(descriptor, *part)

    def copy(self, offset: int, nbytes: int, target: int, target_offset: int) -> None:
        """Copy bytes to the descriptor `target`; FormatError if the file changed since opening."""
        with self.borrowed() as descriptor:
            done = copy_in_kernel(descriptor, offset, target, target_offset, nbytes)
        for at in range(done, nbytes, COPY_BYTES):
            data = self.read(offset + at, min(COPY_BYTES, nbytes - at))
            write_at(target, data.data, target_offset + at)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Have errors name the file, and turn a short read into the FormatError of a change."""
        try:
            with naming(self.path):
                yield
        except ShortReadError:
            self._require_same(is_same=False)

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[None]:
        """Let `data` be looked at; FormatError if the file changed since it was opened."""
        self._watch()
        try:
            yield
        finally:
            with self.borrowed():
                pass
            if isinstance(self.data, MappedBytes):
                self._require_same(is_same=self.data.is_whole)

    def __reduce__(self) -> tuple[Callable[..., MappedFile], tuple[str, Identity]]:
        """Travel as a path and as what tells whether the file found there is the same."""
        return _reopened, (os.fspath(self.path.absolute()), self.identity)

    @functools.cached_property
    def identity(self) -> Identity:
        """What tells this file from others and from its own later states, on any machine."""
        head = self.read(0, min(self.nbytes, HEAD_BYTES))
        return Identity(
            self.nbytes, self._opened.st_mtime_ns, hashlib.sha256(head.data).hexdigest()
        )

    @property
    def status(self) -> os.stat_result:
        """The file's status when it was opened."""
        return self._opened

    def same_file(self, path: Path) -> bool:
        """Whether `path` is this very file, by whatever name."""
        with contextlib.suppress(OSError):
            return os.path.samestat(path.stat(), self._opened)
        return False

    def close(self) -> None:
        """Close and unmap, unless arrays still look into the map: then the last of them does."""
        with self._lock:
            self.closed = True
            self._release()
        if isinstance(self.data, MappedBytes):
            self.data.shut = True
            with contextlib.suppress(BufferError):
                self.data.close()

    def _watch(self) -> None:
        if isinstance(self.data, MappedBytes):
            self.data.watch()

    def _require_open(self) -> None:
        if self.closed:
            raise ClosedError(
                f"{self.path} was closed", remedy="Read tensors before closing the model"
            )

    @contextlib.contextmanager
    def borrowed(self) -> Iterator[int]:
        """Lend a descriptor of its own to each thread, that none reads from a number reused."""
        with self._lock:
            self._require_open()
            descriptor = with_descriptors(lambda: os.dup(self._descriptor))
        try:
            yield descriptor
            with naming(self.path):
                now = os.fstat(descriptor)
        finally:
            close(descriptor)
        same = (now.st_size, now.st_mtime_ns) == (self.nbytes, self._opened.st_mtime_ns)
        self._require_same(is_same=same)

    def _require_same(self, *, is_same: bool) -> None:
        if not is_same:
            raise FormatError(
                "the file changed while it was in use",
                remedy="Run again, and do not change the input while it runs",
                path=str(self.path),
            )


@functools.lru_cache(maxsize=REOPENED)
def _reopened(path: str, identity: Identity) -> MappedFile:
    """Open a file that another process has open; FormatError if it is another one by now."""
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
