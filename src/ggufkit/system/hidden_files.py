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
import stat
from pathlib import Path
from typing import Any, Final

from ggufkit.errors import OutputError
from ggufkit.system.descriptors import BINARY, c_function, close, with_descriptors

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
_CURRENT_FOLDER: Final = -100  # linux/fcntl.h: AT_FDCWD
# The errors of a system or file system without it.
_NO_CALL: Final = {errno.EINVAL, errno.ENOSYS, getattr(errno, "ENOTSUP", errno.ENOSYS)}
renameat2: Any = c_function(  # only on Linux
    "renameat2", ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint
)
has_folder_descriptors: bool = hasattr(os, "O_DIRECTORY")  # Windows has none


# The hidden entries of a file or folder NAME are called `.NAME` plus one of these.
PART: Final = ".ggufkit-part"  # an output that is being written
RESUME: Final = ".ggufkit-resume"  # an output that is kept to be resumed
RESUME_JOURNAL: Final = ".ggufkit-journal"  # what a resumed output already holds
EDIT: Final = ".ggufkit-edit"  # the journal of an edit in place that is under way
UNDO: Final = ".ggufkit-undo"  # the journal of the last edit in place
FOLDER: Final = ".ggufkit-folder"  # a folder that is being written
# Tests put every kind of neighbour under each of them.
SUFFIXES: Final = (PART, RESUME, RESUME_JOURNAL, EDIT, UNDO, FOLDER)


class ForeignFileError(OutputError):
    """Something that this user's ggufkit did not make has a hidden name."""


def hidden(target: Path, suffix: str) -> Path:
    """Return the hidden path next to `target`; a digest replaces a name that is too long."""
    hidden_name = f".{target.name}{suffix}"
    if len(os.fsencode(hidden_name)) > MAX_FILE_NAME:
        import hashlib  # noqa: PLC0415 (loads OpenSSL)

        hidden_name = f".{hashlib.sha256(os.fsencode(target.name)).hexdigest()}{suffix}"
    return target.with_name(hidden_name)


def create(path: Path, mode: int = PRIVATE) -> int:
    """Create a hidden file, and open it for reading and writing; FileExistsError if it exists."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _UNFOLLOWED
    return with_descriptors(lambda: os.open(path, flags, mode))


def open_own(path: Path, flags: int) -> int:
    """Open an existing hidden file with O_RDONLY, O_RDWR, ... in `flags`.

    Raises FileNotFoundError, and ForeignFileError for a link, a pipe, a socket, a device, a
    folder, a file of another user, and a file that has another name too.
    """
    require_own(path.lstat(), path)  # first: opening may act on a device
    descriptor = _opened(path, flags | _EXISTING)
    try:
        require_own(os.fstat(descriptor), path)
    except BaseException:
        close(descriptor)
        raise
    return descriptor


def _opened(path: Path, flags: int) -> int:
    try:
        return with_descriptors(lambda: os.open(path, flags))
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
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    return False


def rename_new(path: Path, target: Path) -> None:
    """Rename a file; FileExistsError if the target exists.

    One step where the system has a call for it; elsewhere another process may come between.
    """
    if os.name == "nt":  # where renaming replaces nothing
        path.rename(target)
    elif not _renamed_in_one_step(path, target):
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
        path.replace(target)


def _renamed_in_one_step(path: Path, target: Path) -> bool:
    """Rename without replacing; return False if the system cannot."""
    if renameat2 is None:
        return False
    names = os.fsencode(path), os.fsencode(target)
    if not renameat2(_CURRENT_FOLDER, names[0], _CURRENT_FOLDER, names[1], _NO_REPLACE):
        return True
    number = ctypes.get_errno()
    if number in _NO_CALL:
        return False
    raise OSError(number, os.strerror(number), str(target))


def open_own_folder(path: Path) -> int | None:
    """Open a hidden folder and return its descriptor; None if folders have none.

    Raises FileNotFoundError, and ForeignFileError for a link, a file, and a folder of another
    user.
    """
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise _foreign(path, f"it is {_kind(status.st_mode)}, not a folder")
    _require_owner(status, path)
    return _opened(path, _FOLDER | _UNFOLLOWED) if has_folder_descriptors else None
