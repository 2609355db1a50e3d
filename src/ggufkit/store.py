"""Files as the rest sees them: mapped for reading, written at offsets, published atomically.

Every call that only some platforms have stands here beside its fallback.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import hashlib
import mmap
import os
import stat
import threading
import weakref
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from ggufkit.errors import ClosedError, FormatError, OutputError
from ggufkit.values import Data, MappedBytes

Bytes = npt.NDArray[np.uint8]
T = TypeVar("T")
AnyPath: TypeAlias = "str | bytes | os.PathLike[str] | os.PathLike[bytes]"

COPY_BYTES: Final = 1 << 20  # per read where the kernel cannot copy by itself
ATTEMPTS: Final = 100  # others may sweep, or begin the same output, between any two calls
MAX_FILE_NAME: Final = 255  # bytes of a name, on all common file systems
HEAD_BYTES: Final = 1 << 20  # of a file tell it from others: the metadata, mostly
MANY_FILES: Final = 10240  # open at once: the most that macOS allows
REOPENED: Final = 64  # files that travelled here are kept open, for they come again
_BINARY: Final = getattr(os, "O_BINARY", 0)
_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | _BINARY
_THERE: Final = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | _BINARY
_HELD: Final = {errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK}
_seek_lock = threading.Lock()  # for platforms without positional reads and writes

# Tests set these to None or False to force the fallbacks.
copy_file_range: Any = getattr(os, "copy_file_range", None)
positional = hasattr(os, "pwrite")
renames_open_files = os.name != "nt"
_SYNC_FILE_RANGE_WRITE: Final = 2  # linux/fs.h
try:
    sync_file_range: Any = ctypes.CDLL(None).sync_file_range
    sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
except (AttributeError, OSError, TypeError):  # only Linux has it
    sync_file_range = None
try:
    import fcntl as _fcntl
except ImportError:  # Windows
    fcntl: Any = None
else:
    fcntl = _fcntl
try:
    import resource as _resource
except ImportError:  # Windows
    resource: Any = None
else:
    resource = _resource
try:
    import msvcrt as _msvcrt
except ImportError:  # anything else
    msvcrt: Any = None
else:
    msvcrt = _msvcrt


def as_path(path: AnyPath) -> Path:
    """Return any kind of path as a Path; an empty one is missing, and not the current folder."""
    name = os.fsdecode(path)
    if not name:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    return Path(name)


def with_descriptors(act: Callable[[], T]) -> T:
    """Return what `act` opens, with more open files than at first allowed if there must be.

    A set of shards takes two for each shard, and systems allow 256 or 1024 where nobody asks.
    """
    try:
        return act()
    except OSError as error:
        if error.errno != errno.EMFILE or not _allow_descriptors():
            raise
    return act()


def _allow_descriptors() -> bool:
    """Take what the system would allow; say whether that is more than before."""
    if resource is None:
        return False
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MANY_FILES if most == resource.RLIM_INFINITY else min(most, MANY_FILES)
    if wanted <= before:
        return False
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
        return True
    return False


# Reading.


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
        self._descriptor = with_descriptors(lambda: os.open(path, os.O_RDONLY | _BINARY))
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

    def view(self, offset: int, nbytes: int) -> Bytes:
        """Return a view of the map; FormatError if the file changed since it was opened."""
        with self._borrowed():
            pass
        if nbytes == 0:
            return np.empty(0, np.uint8)
        return np.frombuffer(self.data, np.uint8, nbytes, offset)

    def read(self, offset: int, nbytes: int) -> Bytes:
        """Return bytes read from the file; FormatError if it changed since it was opened."""
        with self._borrowed() as descriptor, _naming(self.path):
            data = read_at(descriptor, nbytes, offset)
        self._require_same(is_same=len(data) == nbytes)
        return np.frombuffer(data, np.uint8)

    def copy(self, offset: int, nbytes: int, target: int, target_offset: int) -> None:
        """Copy bytes to the descriptor `target`; FormatError if the file changed since opening."""
        with self._borrowed() as descriptor:
            copied = copy_at(descriptor, offset, target, target_offset, nbytes)
        self._require_same(is_same=copied == nbytes)

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[None]:
        """Let `data` be looked at; FormatError if the file changed since it was opened."""
        try:
            yield
        finally:
            with self._borrowed():
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

    def _require_open(self) -> None:
        if self.closed:
            raise ClosedError(
                f"{self.path} was closed", remedy="Read tensors before closing the model"
            )

    @contextlib.contextmanager
    def _borrowed(self) -> Iterator[int]:
        """Lend a descriptor of its own to each thread, that none reads from a number reused."""
        with self._lock:
            self._require_open()
            descriptor = with_descriptors(lambda: os.dup(self._descriptor))
        try:
            yield descriptor
            with _naming(self.path):
                now = os.fstat(descriptor)
        finally:
            close(descriptor)
        same = (now.st_size, now.st_mtime_ns) == (self.nbytes, self._opened.st_mtime_ns)
        self._require_same(is_same=same)

    def _require_same(self, *, is_same: bool) -> None:
        if not is_same:
            raise FormatError(
                "the file was changed while in use",
                remedy="Run again and leave the input alone meanwhile",
                path=str(self.path),
            )


@functools.lru_cache(maxsize=REOPENED)
def _reopened(path: str, identity: Identity) -> MappedFile:
    """Open a file that another process has open; FormatError if it is another one by now."""
    remedy = "Give all processes the same file under the same path, and leave it alone meanwhile"
    try:
        file = MappedFile(Path(path))
    except OSError as error:
        message = f"cannot be opened where the work is done: {error.strerror}"
        raise FormatError(message, remedy=remedy, path=path) from error
    if file.identity == identity:
        return file
    raise FormatError("the file is another one than at the beginning", remedy=remedy, path=path)


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Have an error of a descriptor tell the file, as one of a path does."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def close(descriptor: int) -> None:
    """Close what was read, synced or given up: a failure tells nothing about it any more."""
    with contextlib.suppress(OSError):
        os.close(descriptor)


def read_at(descriptor: int, nbytes: int, offset: int) -> bytes:
    """Read `nbytes` at `offset`, or fewer where the file ends before."""
    parts: list[bytes] = []
    while nbytes and (data := _read_some(descriptor, nbytes, offset)):
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


# Writing.


def write_at(descriptor: int, data: bytes | memoryview, offset: int) -> None:
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


def checksum_at(descriptor: int, offset: int, nbytes: int) -> int:
    """Return the checksum of `nbytes` at `offset`; of fewer where the file ends before."""
    checksum = 0
    for at in range(offset, offset + nbytes, COPY_BYTES):
        data = read_at(descriptor, min(COPY_BYTES, offset + nbytes - at), at)
        checksum = zlib.crc32(data, checksum)
    return checksum


def begin_writeback(descriptor: int, offset: int, nbytes: int) -> None:
    """Have the kernel begin to write bytes to the disk, so that syncing at the end is short."""
    if sync_file_range:
        sync_file_range(descriptor, offset, nbytes, _SYNC_FILE_RANGE_WRITE)


def copy_at(source: int, source_offset: int, target: int, target_offset: int, nbytes: int) -> int:
    """Copy bytes between descriptors, in the kernel where the platform can.

    Return how many: fewer where the source ends before.
    """
    done = _copy_in_kernel(source, source_offset, target, target_offset, nbytes)
    while done < nbytes:
        data = read_at(source, min(COPY_BYTES, nbytes - done), source_offset + done)
        if not data:
            break
        write_at(target, data, target_offset + done)
        done += len(data)
    return done


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


class Output:
    """A file that grows: open in the process that made it, reopened by its path in any other."""

    def __init__(self, path: Path, number: int, descriptor: int | None = None) -> None:
        """Take a path, the file's number (inode) and, where it is open, its descriptor."""
        self.path = path
        self.number = number
        self._descriptor = descriptor

    def __reduce__(self) -> tuple[Callable[..., Output], tuple[Path, int]]:
        """Travel without the descriptor, which means nothing elsewhere."""
        return Output, (self.path.absolute(), self.number)

    @contextlib.contextmanager
    def opened(self) -> Iterator[int]:
        """Lend a descriptor for writing; what is written is safe at the end, or once synced."""
        if self._descriptor is not None:
            yield self._descriptor
            return
        descriptor = os.open(self.path, os.O_RDWR | _BINARY)
        try:
            # A late worker must not write into the output of the next attempt.
            if os.fstat(descriptor).st_ino != self.number:
                raise OSError(errno.ESTALE, "the output is another one by now", str(self.path))
            yield descriptor
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# Publishing.


class Staging:
    """The hidden sibling in which an output grows until it is whole.

    Its name follows from the output's, and it is locked while in use: whoever comes next can
    tell a leftover of a killed process from one that is being written, and removes the former.
    One that is `kept` is no leftover: it lies under another name, and the next one goes on in it.
    """

    SUFFIX: Final = ".ggufkit-part"
    KEPT: Final = ".ggufkit-resume"

    def __init__(self, target: Path, *, kept: bool = False) -> None:
        """Create or take over, and lock, the sibling of `target`.

        Raises OutputError if another process writes it.
        """
        own, other = (self.KEPT, self.SUFFIX) if kept else (self.SUFFIX, self.KEPT)
        self.target = target
        self.path = sibling(target, own)
        self.is_kept = kept
        self.is_new = True
        self.descriptor = -1
        if not remove_leftover(sibling(target, other)):
            raise self._refusal(sibling(target, other))
        try:
            self._take()
            self.output = Output(self.path, os.fstat(self.descriptor).st_ino, self.descriptor)
        except BaseException:
            self.leave()
            raise

    def _take(self) -> None:
        """Open the file and lock it."""
        for _ in range(ATTEMPTS):
            self.descriptor = self._opened()
            if self.descriptor < 0:
                continue
            if lock(self.descriptor) is not False and _is_at(self.path, self.descriptor):
                return
            self._close()
            if self.is_kept:
                break
        raise self._refusal(self.path)

    def _opened(self) -> int:
        """Open the file; -1 if another was in the way and is gone."""
        try:
            return with_descriptors(lambda: os.open(self.path, _NEW, 0o666))
        except FileExistsError:
            if self.is_kept:
                self.is_new = False
                return os.open(self.path, _THERE)
        if remove_leftover(self.path):
            return -1
        raise self._refusal(self.path)

    def _refusal(self, path: Path) -> OutputError:
        return OutputError(
            f"{self.target} is being written by another process",
            remedy=f"Wait for it or choose another name; if none runs, remove {path}",
        )

    def resize(self, nbytes: int) -> None:
        """Give the file its final size; what is never written reads as zeros."""
        os.ftruncate(self.descriptor, nbytes)

    def sync(self) -> None:
        """Make the content durable."""
        os.fsync(self.descriptor)

    def publish(self) -> None:
        """Put the file in the place of the target, at once."""
        self._finish(lambda: self.path.replace(self.target))

    def leave(self) -> None:
        """Keep the file for the next run, or remove it; nothing happens if it was published."""
        if self.is_kept:
            self._close()
        self.discard()

    def discard(self) -> None:
        """Remove the file; nothing happens if it was published."""
        if self.descriptor >= 0 and _is_at(self.path, self.descriptor):
            with contextlib.suppress(OSError):
                self._finish(self.path.unlink)
        self._close()

    def _finish(self, act: Callable[[], object]) -> None:
        """Rename or remove the file while it is locked, or closed where that must be."""
        if not renames_open_files:
            self._close()
        act()
        self._close()

    def _close(self) -> None:
        if self.descriptor >= 0:
            close(self.descriptor)
            self.descriptor = -1


def sibling(target: Path, suffix: str) -> Path:
    """Return the hidden file beside `target` that `suffix` tells from others."""
    hidden = f".{target.name}{suffix}"
    if len(os.fsencode(hidden)) > MAX_FILE_NAME:
        hidden = f".{hashlib.sha256(os.fsencode(target.name)).hexdigest()}{suffix}"
    return target.with_name(hidden)


def kept_bytes(target: Path) -> int:
    """Return how much of its disk the kept staging file of `target` takes already."""
    with contextlib.suppress(OSError, AttributeError):  # Windows counts no blocks
        return sibling(target, Staging.KEPT).lstat().st_blocks * 512
    return 0


def sweep(folder: Path) -> None:
    """Remove what killed processes left behind in `folder`: staging files that nobody locks."""
    for path in folder.glob(f".*{Staging.SUFFIX}"):
        remove_leftover(path)


def remove_leftover(path: Path) -> bool:
    """Remove a staging file unless a process holds it, and say whether it is gone."""
    try:
        descriptor = with_descriptors(lambda: os.open(path, _THERE))
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno == errno.EMFILE:
            raise
        return False
    try:
        if lock(descriptor) is not True:
            return False
        if not _is_at(path, descriptor):  # another process removed it first
            return True
        if renames_open_files:
            path.unlink()
            return True
    finally:
        os.close(descriptor)
    with contextlib.suppress(OSError):
        path.unlink()
    return not path.exists()


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether an open file is still the one at `path`."""
    with contextlib.suppress(OSError):
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    return False


def lock(descriptor: int) -> bool | None:
    """Lock an open file: True if taken, False if another holds it, None where there are no locks.

    The lock ends with the descriptor, and so with the process, however that ends.
    """
    try:
        if fcntl:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        elif msvcrt:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            return None
    except OSError as error:
        return False if error.errno in _HELD else None
    return True


def sync_folder(folder: Path) -> None:
    """Make renames in `folder` durable, where folders can be synced."""
    try:
        descriptor = with_descriptors(lambda: os.open(folder, os.O_RDONLY))
    except OSError:  # Windows
        return
    try:
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
    finally:
        close(descriptor)
