"""Hidden files next to outputs and models: the list of their names, and how they are opened.

Anyone who can write to the folder may have put something else under such a name. So a hidden file
is created only if its name is free, and an existing one is used only if it is a regular file of
this user with no other name. No function here follows a link.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from ggufkit.errors import OutputError
from ggufkit.system.descriptors import BINARY, c_function, close, with_descriptors

T = TypeVar("T")
MAX_FILE_NAME: Final = 255  # bytes of a name, on all common file systems
PRIVATE: Final = 0o600
_UNFOLLOWED: Final = getattr(os, "O_NOFOLLOW", 0) | BINARY
# Opening a pipe must not wait for the other end.
_EXISTING: Final = _UNFOLLOWED | getattr(os, "O_NONBLOCK", 0)
_FOLDER: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
# The system's errors for a link, a folder, a socket, a file of another user.
_NOT_OURS: Final = {
    errno.ELOOP,
    errno.EMLINK,  # FreeBSD's error for a link
    errno.EISDIR,
    errno.ENOTDIR,
    errno.ENXIO,
    errno.EACCES,
    errno.EPERM,
}
_NO_REPLACE: Final = 1  # linux/fs.h: RENAME_NOREPLACE
# The errors of a system or file system without it.
_NO_CALL: Final = {errno.EINVAL, errno.ENOSYS, getattr(errno, "ENOTSUP", errno.ENOSYS)}
renameat2: Any = c_function(  # only on Linux
    "renameat2", ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint
)
_HAS_FOLDER_DESCRIPTORS: Final = {os.open, os.unlink, os.rename, os.stat} <= os.supports_dir_fd


class HiddenName(NamedTuple):
    """The name of one kind of hidden entry: `.NAME` plus `suffix`."""

    suffix: str
    holds: str
    is_folder: bool = False


PART: Final = HiddenName(".ggufkit-part", "an output that is being written")
RESUME: Final = HiddenName(".ggufkit-resume", "an output that is kept to be resumed")
RESUME_JOURNAL: Final = HiddenName(".ggufkit-journal", "what a resumed output already holds")
EDIT: Final = HiddenName(".ggufkit-edit", "the journal of an edit in place that is under way")
UNDO: Final = HiddenName(".ggufkit-undo", "the journal of the last edit in place")
FOLDER: Final = HiddenName(".ggufkit-folder", "a folder that is being written", is_folder=True)

# All hidden names. Tests put every kind of neighbour under each of them.
HIDDEN_NAMES: Final = (PART, RESUME, RESUME_JOURNAL, EDIT, UNDO, FOLDER)


class ForeignFileError(OutputError):
    """Something that this user's ggufkit did not make has a hidden name."""


def hidden(target: Path, name: HiddenName) -> Path:
    """Return the hidden path next to `target`; a digest replaces a name that is too long."""
    hidden_name = f".{target.name}{name.suffix}"
    if len(os.fsencode(hidden_name)) > MAX_FILE_NAME:
        import hashlib  # noqa: PLC0415 (loads OpenSSL)

        hidden_name = f".{hashlib.sha256(os.fsencode(target.name)).hexdigest()}{name.suffix}"
    return target.with_name(hidden_name)


class OpenFolder:
    """An open folder: names are relative to it, even if its path changes meanwhile."""

    def __init__(self, path: Path) -> None:
        """Open the folder; Windows cannot, so remember its path there."""
        self.path = path
        self.descriptor: int | None = None
        if _HAS_FOLDER_DESCRIPTORS:
            self.descriptor = with_descriptors(lambda: os.open(path, _FOLDER))

    def __enter__(self) -> OpenFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the folder; closing it again does nothing."""
        descriptor, self.descriptor = self.descriptor, None
        if descriptor is not None:
            close(descriptor)

    def open(self, name: str, flags: int, mode: int = PRIVATE) -> int:
        """Open an entry; never follow a link."""
        return with_descriptors(lambda: self._call(os.open, name, flags, mode))

    def status(self, name: str) -> os.stat_result:
        """Return the status of an entry; for a link, the link's own."""
        return self._call(os.stat, name, follow_symlinks=False)

    def unlink(self, name: str) -> None:
        """Remove a file or link."""
        self._call(os.unlink, name)

    def rmdir(self, name: str) -> None:
        """Remove an empty folder."""
        self._call(os.rmdir, name)

    def mkdir(self, name: str, mode: int) -> None:
        """Create a folder."""
        self._call(os.mkdir, name, mode)

    def replace(self, name: str, other: str) -> None:
        """Rename an entry, and replace the target if it exists."""
        here = self.descriptor
        both: dict[str, Any] = {} if here is None else {"src_dir_fd": here, "dst_dir_fd": here}
        with self._naming(other):
            os.replace(*self._relative(name), *self._relative(other), **both)  # noqa: PTH105

    def rename_new(self, name: str, other: str) -> None:
        """Rename an entry; FileExistsError if the target exists.

        One step where the system has a call for it; elsewhere another process may come between.
        """
        with self._naming(other):
            if os.name == "nt":
                os.rename(*self._relative(name), *self._relative(other))  # noqa: PTH104
                return
            if self._renamed_in_one_step(name, other):
                return
            with contextlib.suppress(FileNotFoundError):
                self.status(other)
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), other)
        self.replace(name, other)

    def _renamed_in_one_step(self, name: str, other: str) -> bool:
        """Rename without replacing; return False if the system cannot."""
        if renameat2 is None or self.descriptor is None:
            return False
        names = os.fsencode(name), os.fsencode(other)
        if not renameat2(self.descriptor, names[0], self.descriptor, names[1], _NO_REPLACE):
            return True
        number = ctypes.get_errno()
        if number in _NO_CALL:
            return False
        raise OSError(number, os.strerror(number))

    @contextlib.contextmanager
    def _naming(self, name: str) -> Iterator[None]:
        """Put the whole path into errors of the system."""
        try:
            yield
        except OSError as error:
            error.filename, error.filename2 = str(self.path / name), None
            raise

    def sync(self) -> None:
        """Make renames durable, if folders can be synced."""
        if self.descriptor is not None:
            with contextlib.suppress(OSError):
                os.fsync(self.descriptor)

    def is_at(self, name: str, descriptor: int) -> bool:
        """Whether an open file or folder still has this name."""
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(descriptor), self.status(name))
        return False

    def _relative(self, name: str) -> tuple[Any]:
        return (name if self.descriptor is not None else self.path / name,)

    def _call(self, act: Callable[..., T], name: str, *arguments: object, **options: object) -> T:
        with self._naming(name):
            if self.descriptor is not None:
                options["dir_fd"] = self.descriptor
            return act(*self._relative(name), *arguments, **options)


# Files.


def create(path: Path, mode: int = PRIVATE) -> int:
    """Create a hidden file, and open it for reading and writing; FileExistsError if it exists."""
    folder, descriptor = OpenFolder(path.parent), -1
    try:
        descriptor = folder.open(path.name, os.O_RDWR | os.O_CREAT | os.O_EXCL | _UNFOLLOWED, mode)
        folder.close()
    except BaseException:
        if descriptor >= 0:  # a signal came
            close(descriptor)
            path.unlink()
        folder.close()
        raise
    return descriptor


def open_own(path: Path, flags: int) -> int:
    """Open an existing hidden file with O_RDONLY, O_RDWR, ... in `flags`.

    Raises FileNotFoundError, and ForeignFileError for a link, a pipe, a socket, a device, a
    folder, a file of another user, and a file that has another name too.
    """
    with OpenFolder(path.parent) as folder:
        require_own(folder.status(path.name), path)  # first: opening may act on a device
        descriptor = _opened(folder, path, flags | _EXISTING)
        try:
            require_own(os.fstat(descriptor), path)
        except BaseException:
            close(descriptor)
            raise
        return descriptor


def _opened(folder: OpenFolder, path: Path, flags: int) -> int:
    try:
        return folder.open(path.name, flags)
    except OSError as error:
        if error.errno in _NOT_OURS:
            raise _foreign(path, error.strerror or str(error)) from error
        raise


def require_own(status: os.stat_result, path: Path) -> None:
    """Raise ForeignFileError unless this is a regular file of this user with no other name."""
    if not stat.S_ISREG(status.st_mode):
        raise _foreign(path, f"it is {_kind(status.st_mode)}")
    _require_owner(status, path)
    if status.st_nlink > 1:
        raise _foreign(path, "it is a hard link to a file that has another name too")


def _require_owner(status: os.stat_result, path: Path) -> None:
    if hasattr(os, "geteuid") and status.st_uid != os.geteuid():
        raise _foreign(path, f"it belongs to another user (number {status.st_uid})")


def _kind(mode: int) -> str:
    kinds = (
        (stat.S_ISLNK, "a link"),
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
    )
    return next((name for is_kind, name in kinds if is_kind(mode)), "a device")


def _foreign(path: Path, reason: str) -> ForeignFileError:
    return ForeignFileError(
        f"{path} is not a file that ggufkit made for you: {reason}",
        remedy="Remove it, or work in a folder that only you can write to",
    )


def is_at(path: Path, descriptor: int) -> bool:
    """Whether an open file or folder is still the one at `path`; OSError if the system fails."""
    with OpenFolder(path.parent) as folder:
        return folder.is_at(path.name, descriptor)


def remove(path: Path) -> None:
    """Remove a hidden file or link of any kind, if it is there; the target of a link stays."""
    with contextlib.suppress(FileNotFoundError), OpenFolder(path.parent) as folder:
        folder.unlink(path.name)


# Folders.


def make_folder(path: Path, mode: int) -> bool:
    """Create a hidden folder unless something has its name; return whether it was created."""
    with OpenFolder(path.parent) as parent:
        try:
            parent.mkdir(path.name, mode)
        except FileExistsError:
            return False
    return True


def open_own_folder(path: Path, mode: int) -> int | None:
    """Open a hidden folder and return its descriptor; None if folders have none.

    Its mode becomes `mode`, or fewer bits if it has fewer. Raises ForeignFileError for a link, a
    file, and a folder of another user.
    """
    with OpenFolder(path.parent) as parent:
        descriptor = _opened_folder(parent, path)
    if descriptor is not None:
        try:
            status = os.fstat(descriptor)
            _require_owner(status, path)
            os.fchmod(descriptor, stat.S_IMODE(status.st_mode) & mode)
        except BaseException:
            close(descriptor)
            raise
    return descriptor


def _opened_folder(parent: OpenFolder, path: Path) -> int | None:
    """Return a descriptor of a folder of this user; None if folders have none."""
    status = parent.status(path.name)
    if not stat.S_ISDIR(status.st_mode):
        raise _foreign(path, f"it is {_kind(status.st_mode)}, not a folder")
    _require_owner(status, path)
    if parent.descriptor is None:
        return None
    return _opened(parent, path, _FOLDER | _UNFOLLOWED)


def empty_folder(path: Path, descriptor: int | None) -> None:
    """Remove everything in a folder, through descriptors if the system has them."""
    if descriptor is None:
        for entry in path.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        return
    with os.scandir(descriptor) as entries:
        contents = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in contents:
        if is_folder:
            inner = os.open(name, _FOLDER | _UNFOLLOWED, dir_fd=descriptor)
            try:
                empty_folder(Path(name), inner)
            finally:
                close(inner)
            os.rmdir(name, dir_fd=descriptor)
        else:
            os.unlink(name, dir_fd=descriptor)


def remove_folder(path: Path, descriptor: int | None) -> None:
    """Remove the folder open as `descriptor`, and never another one now at `path`."""
    with OpenFolder(path.parent) as parent:
        if descriptor is None or parent.is_at(path.name, descriptor):
            empty_folder(path, descriptor)
            parent.rmdir(path.name)


def remove_empty_folder(path: Path) -> None:
    """Remove a folder if it is empty."""
    with OpenFolder(path.parent) as parent:
        parent.rmdir(path.name)
