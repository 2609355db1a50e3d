"""Files as the rest sees them: mapped for reading, written at offsets, published atomically.

Every call that only some platforms have stands here beside its fallback.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from ggufkit.errors import FormatError, OutputError
from ggufkit.values import Data, MappedBytes

COPY_BYTES: Final = 1 << 20  # per read where the kernel cannot copy by itself
_BINARY: Final = getattr(os, "O_BINARY", 0)
_seek_lock = threading.Lock()  # for platforms without positional reads and writes

# Tests set these to None or False to force the fallbacks.
copy_file_range: Any = getattr(os, "copy_file_range", None)
positional = hasattr(os, "pwrite")
try:
    import fcntl as _fcntl
except ImportError:  # Windows
    fcntl: Any = None
else:
    fcntl = _fcntl


class MappedFile:
    """A file mapped read-only into memory; its descriptor is not kept."""

    def __init__(self, path: Path) -> None:
        """Map the whole file; OSError as `open` raises it."""
        self.path = path
        descriptor = os.open(path, os.O_RDONLY | _BINARY)
        try:
            stat = os.fstat(descriptor)
            self.nbytes = stat.st_size
            self._identity = (stat.st_dev, stat.st_ino)
            self.data: Data = b""
            if self.nbytes:
                self.data = MappedBytes(descriptor, self.nbytes, access=mmap.ACCESS_READ)
        finally:
            os.close(descriptor)
        self.closed = False

    def open(self) -> int:
        """Return a new descriptor of the same file, or raise FormatError if it was replaced."""
        descriptor = os.open(self.path, os.O_RDONLY | _BINARY)
        stat = os.fstat(descriptor)
        if (stat.st_dev, stat.st_ino) == self._identity and stat.st_size >= self.nbytes:
            return descriptor
        os.close(descriptor)
        raise FormatError(
            "the file was replaced or cut while in use",
            remedy="Run again and leave the input alone meanwhile",
            path=str(self.path),
        )

    def same_file(self, path: Path) -> bool:
        """Whether `path` is this very file."""
        try:
            stat = path.stat()
        except OSError:
            return False
        return (stat.st_dev, stat.st_ino) == self._identity

    def close(self) -> None:
        """Unmap, unless arrays still look into the map: then the last of them does."""
        self.closed = True
        if isinstance(self.data, MappedBytes):
            self.data.shut = True
            with contextlib.suppress(BufferError):
                self.data.close()


def write_at(descriptor: int, data: Data | memoryview, offset: int) -> None:
    """Write all of `data` at `offset`, however many calls it takes."""
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


def read_at(descriptor: int, nbytes: int, offset: int) -> bytes:
    """Read up to `nbytes` at `offset`."""
    if positional:
        return os.pread(descriptor, nbytes, offset)
    with _seek_lock:
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.read(descriptor, nbytes)


def read_exactly(descriptor: int, nbytes: int, offset: int) -> bytes:
    """Read `nbytes` at `offset`; OutputError when the file ends before."""
    parts: list[bytes] = []
    done = 0
    while done < nbytes:
        data = read_at(descriptor, nbytes - done, offset + done)
        if not data:
            raise _ended_early(nbytes - done)
        parts.append(data)
        done += len(data)
    return b"".join(parts)


def _ended_early(missing: int) -> OutputError:
    return OutputError(
        f"an input file ended {missing} bytes early",
        remedy="It was cut while being read; run again with the whole file",
    )


def copy_at(source: int, source_offset: int, target: int, target_offset: int, nbytes: int) -> None:
    """Copy bytes between descriptors, in the kernel where the platform can.

    Raises OutputError when the source ends early.
    """
    done = _copy_in_kernel(source, source_offset, target, target_offset, nbytes)
    while done < nbytes:
        data = read_at(source, min(COPY_BYTES, nbytes - done), source_offset + done)
        if not data:
            raise _ended_early(nbytes - done)
        write_at(target, data, target_offset + done)
        done += len(data)


def _copy_in_kernel(
    source: int, source_offset: int, target: int, target_offset: int, nbytes: int
) -> int:
    """Return how many bytes the kernel copied before it could not."""
    done = 0
    while copy_file_range and done < nbytes:
        try:
            count = copy_file_range(
                source, target, nbytes - done, source_offset + done, target_offset + done
            )
        except OSError:  # other file system, old kernel, special file: copied by hand instead,
            return done  # where a real fault (a full disk) shows again and is raised
        if count == 0:
            return done
        done += count
    return done


def try_lock(descriptor: int) -> bool:
    """Take the advisory lock of an open file; False when another process holds it."""
    if fcntl is None:
        return True  # Windows: an open file cannot be deleted or opened for writing by others
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def sync_folder(folder: Path) -> None:
    """Make renames in `folder` durable, where folders can be synced."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows
        return
    try:
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Staging:
    """The hidden sibling in which an output grows until it is whole.

    Its name follows from the output's, and it is locked while in use: whoever comes next can
    tell a leftover of a killed process from one that is being written, and removes the former.
    """

    SUFFIX: Final = ".ggufkit-part"

    def __init__(self, target: Path) -> None:
        """Create and lock the sibling of `target`; OutputError if another process writes it."""
        self.target = target
        self.path = target.with_name(f".{target.name}{self.SUFFIX}")
        self.descriptor = self._locked()

    def _locked(self) -> int:
        while True:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | _BINARY, 0o666)
            if not try_lock(descriptor):
                os.close(descriptor)
                raise OutputError(
                    f"{self.target} is being written by another process",
                    remedy="Wait for it, or choose another name",
                )
            if self._is_current(descriptor):
                os.ftruncate(descriptor, 0)
                return descriptor
            os.close(descriptor)

    def _is_current(self, descriptor: int) -> bool:
        """Whether the locked file is still the one at the path: a sweep may have removed it."""
        with contextlib.suppress(OSError):
            return os.path.samestat(os.fstat(descriptor), self.path.stat())
        return False

    def resize(self, nbytes: int) -> None:
        """Give the file its final size; what is never written reads as zeros."""
        os.ftruncate(self.descriptor, nbytes)

    def sync(self) -> None:
        """Make the content durable."""
        os.fsync(self.descriptor)

    def publish(self) -> None:
        """Put the file in the place of the target, at once."""
        if fcntl is None:
            os.close(self.descriptor)  # Windows renames closed files only
            self.descriptor = -1
        self.path.replace(self.target)
        self.close()

    def discard(self) -> None:
        """Remove the file; nothing happens if it was published."""
        if self.descriptor >= 0:
            with contextlib.suppress(OSError):
                self.path.unlink()
            self.close()

    def close(self) -> None:
        """Release the lock."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def sweep(folder: Path) -> None:
    """Remove what killed processes left behind in `folder`: staging files that nobody locks."""
    for path in folder.glob(f".*{Staging.SUFFIX}"):
        with contextlib.suppress(OSError), _opened(path) as descriptor:
            if try_lock(descriptor):
                path.unlink()


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | _BINARY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
