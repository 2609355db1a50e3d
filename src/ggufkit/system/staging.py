"""Write outputs as hidden files next to their targets, and publish them when complete."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from ggufkit.errors import DiskSpaceError, OutputError
from ggufkit.system import descriptors
from ggufkit.system.cancellation import shield
from ggufkit.system.descriptors import BINARY, close, lock, write_at
from ggufkit.system.hidden_files import (
    PART,
    PRIVATE,
    RESUME,
    ForeignFileError,
    create,
    hidden,
    is_at,
    open_own,
    rename_new,
)
from ggufkit.system.readers_limit import NO_LIMIT, ReadersLimit, group_of_new_files

Filled = TypeVar("Filled")
DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)})
DEVICES: Final = Path("/dev")
ATTEMPTS: Final = 100  # others may sweep or start the same output between calls


class Output:
    """An unfinished file: open in the process that made it, reopened by path in others."""

    def __init__(self, path: Path, number: int, descriptor: int | None = None) -> None:
        """Take a path, the file's inode number and, if it is open, its descriptor."""
        self.path: Path = path
        self.number = number
        self._descriptor = descriptor

    def __reduce__(self) -> tuple[Callable[..., Output], tuple[Path, int]]:
        """Pickle without the descriptor: it is invalid in other processes."""
        return Output, (self.path.absolute(), self.number)

    @contextlib.contextmanager
    def opened(self) -> Iterator[int]:
        """Provide a descriptor for writing; bytes are durable at the end, or once synced."""
        if self._descriptor is not None:
            yield self._descriptor
            return
        descriptor = os.open(self.path, os.O_RDWR | BINARY | getattr(os, "O_NOFOLLOW", 0))
        try:
            # A late worker must not write into the output of the next attempt.
            if os.fstat(descriptor).st_ino != self.number:
                raise OSError(
                    errno.ESTALE, "the output was replaced during the write", str(self.path)
                )
            yield descriptor
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class Staging:
    """The hidden file next to the target that becomes the output when complete.

    Its name is derived from the output's, and it is locked while in use. So the next process can
    distinguish leftovers of killed processes from files being written, and removes leftovers. A
    `resumable` file is not a leftover: it has another name, and the next run continues it.

    `limit` is who may read the inputs: nobody else may read the output, from its first byte on. An
    output that replaces a file keeps its mode within that limit, and its owner if allowed.
    """

    def __init__(
        self,
        target: Path,
        *,
        resumable: bool = False,
        limit: ReadersLimit = NO_LIMIT,
        clobber: bool = True,
    ) -> None:
        """Create or take over the hidden file of `target`, and lock it.

        Without `clobber` it never replaces a file, not even one that appears meanwhile.
        Raises OutputError for a device or pipe, or if another process writes it, ForeignFileError
        (an OutputError) if something else has its name.
        """
        require_file(target)
        name, other = (RESUME, PART) if resumable else (PART, RESUME)
        self.target = target
        self.path: Path = hidden(target, name)
        self.is_resumable = resumable
        self.is_new: bool = True
        self.limit = limit
        self.clobber = clobber
        self.replaced: os.stat_result | None = _status(target)
        self.descriptor: int = -1
        if not remove_leftover(hidden(target, other)):
            raise self._refusal(hidden(target, other))
        try:
            self._take()
            self.output: Output = Output(
                self.path, os.fstat(self.descriptor).st_ino, self.descriptor
            )
        except BaseException:
            self.leave()
            raise

    def _take(self) -> None:
        for _ in range(ATTEMPTS):
            self.descriptor = self._opened()
            if self.descriptor < 0:
                continue
            if lock(self.descriptor) is not False and is_at(self.path, self.descriptor):
                return
            self._close()
            if self.is_resumable:
                break
        raise self._refusal(self.path)

    def _opened(self) -> int:
        """Open the file; -1 if another file was there and is now gone."""
        try:
            return create(self.path, self._first_mode())
        except FileExistsError:
            if self.is_resumable:
                self.is_new = False
                return open_own(self.path, os.O_RDWR)
        if remove_leftover(self.path):
            return -1
        raise self._refusal(self.path)

    def _first_mode(self) -> int:
        """Return the mode for creating the file, before the umask."""
        if self.replaced:  # the output gets its mode at the end
            return PRIVATE
        return self.limit.mode(0o666, group_of_new_files(self.target.parent))

    def _refusal(self, path: Path) -> OutputError:
        return OutputError(
            f"{self.target} is being written by another process",
            remedy=f"Wait for it, or choose another name; if no such process runs, remove {path}",
        )

    def publish(self) -> None:
        """Replace the target by the file, in one step."""
        if self.replaced:
            self.limit.pass_on(self.replaced, self.descriptor)
        if not is_at(self.path, self.descriptor):
            raise OutputError(
                f"{self.path} was removed or replaced while it was written",
                remedy="Write to a folder that only you can write to",
            )
        rename = os.replace if self.clobber else rename_new
        try:
            self._finish(lambda: rename(self.path, self.target))
        except FileExistsError:
            raise exists_already(self.target) from None

    def leave(self) -> None:
        """Keep the file for the next run, or remove it; a published file stays."""
        if self.is_resumable:
            self._close()
        self.discard()

    def discard(self) -> None:
        """Remove the file, unless it was published."""
        with contextlib.suppress(OSError):
            if self.descriptor >= 0 and is_at(self.path, self.descriptor):
                self._finish(self.path.unlink)
        self._close()

    def _finish(self, act: Callable[[], object]) -> None:
        """Rename or remove the file while it is locked, or closed if the system needs that."""
        if not descriptors.renames_open_files:
            self._close()
        act()
        self._close()

    def _close(self) -> None:
        if self.descriptor >= 0:
            close(self.descriptor)
            self.descriptor = -1


def staged(
    target: Path,
    fill: Callable[[Staging], Filled],
    *,
    resumable: bool = False,
    limit: ReadersLimit = NO_LIMIT,
    clobber: bool = True,
) -> Filled:
    """Return the result of `fill(stage)`; the file appears as `target` whole, or not at all.

    Options and errors are as for `Staging`.
    """
    with shield(), contextlib.ExitStack() as opened:
        stage = Staging(target, resumable=resumable, limit=limit, clobber=clobber)
        opened.callback(stage.leave)
        try:
            result = fill(stage)
            os.fsync(stage.descriptor)
        except OSError as error:
            if error.errno in DISK_FULL and not error.filename:
                error.filename = str(target)
            raise
        stage.publish()
    return result


def write_whole(
    target: Path, content: bytes, *, limit: ReadersLimit = NO_LIMIT, clobber: bool = True
) -> None:
    """Write a file, whole or not at all; options and errors are as for `Staging`."""
    staged(
        target, lambda stage: write_at(stage.descriptor, content, 0), limit=limit, clobber=clobber
    )


def require_file(target: Path) -> None:
    """Raise OutputError for a folder, pipe or device, which publishing would replace.

    /dev/stdout may lead to a regular file, and publishing would replace the link for everybody.
    """
    if target.exists() and (not target.is_file() or target.absolute().parent == DEVICES):
        raise OutputError(
            f"{target} exists and is not a regular file",
            remedy="Give a file name; to write to a pipe or device, use standard output",
        )


def require_space(folder: Path, nbytes: int, remedy: str) -> None:
    """Raise DiskSpaceError if the disk of a folder has less than `nbytes` free."""
    free = shutil.disk_usage(folder).free
    if free < nbytes:
        raise DiskSpaceError(
            f"{folder} has {free:,} bytes free, and {nbytes:,} are needed", remedy=remedy
        )


def exists_already(target: Path) -> OutputError:
    """Return the error for an output that may not replace a file."""
    return OutputError(
        f"{target} exists already", remedy="Use another name, or allow replacing it (clobber=True)"
    )


def _status(path: Path) -> os.stat_result | None:
    """Return the status of a regular file; None if it is missing."""
    with contextlib.suppress(OSError):
        status = path.lstat()
        return status if stat.S_ISREG(status.st_mode) else None
    return None


def allocated_bytes(target: Path) -> int:
    """Return the bytes on disk of the output of `target` that an earlier run left to be resumed."""
    with contextlib.suppress(OSError, AttributeError):  # Windows has no count of blocks
        return hidden(target, RESUME).lstat().st_blocks * 512
    return 0


def sweep(folder: Path) -> None:
    """Remove leftovers of killed processes in `folder`: own staging files without a lock."""
    for path in folder.glob(f".*{PART}"):
        with contextlib.suppress(ForeignFileError):
            remove_leftover(path)


def remove_leftover(path: Path) -> bool:
    """Remove a staging file unless a process holds it; return whether it is gone.

    Raises ForeignFileError for a file that this user's ggufkit did not make.
    """
    try:
        descriptor = open_own(path, os.O_RDWR)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError as error:
        if isinstance(error, ForeignFileError) or error.errno == errno.EMFILE:
            raise
        return False
    try:
        if lock(descriptor) is not True:
            return False
        if not is_at(path, descriptor):  # another process removed it first
            return True
        if descriptors.renames_open_files:
            path.unlink()
            return True
    finally:
        os.close(descriptor)
    with contextlib.suppress(OSError):
        path.unlink()
    return not path.exists()
