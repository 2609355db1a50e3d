"""Folders that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from ggufkit.errors import OutputError
from ggufkit.system.descriptors import lock, sync_folder
from ggufkit.system.hidden_files import (
    FOLDER,
    empty_folder,
    hidden,
    is_surely_at,
    own_folder,
    remove_folder,
)
from ggufkit.system.readers_limit import NO_LIMIT, ReadersLimit, group_of_new_files


@contextlib.contextmanager
def appearing(folder: Path, limit: ReadersLimit = NO_LIMIT) -> Iterator[Path]:
    """Provide a hidden folder that becomes `folder` at the end, or vanishes on an error.

    Only users within `limit` can ever enter it. Raises OutputError if `folder` is not empty, or
    another process is making it, and ForeignFileError (an OutputError) if something else has the
    hidden folder's name.
    """
    _require_free(folder)
    path = hidden(folder, FOLDER)
    mode = limit.mode(0o777, group_of_new_files(folder.parent))
    try:
        with own_folder(path, mode) as descriptor:
            with _removed_if_unknown(path):
                _require_lock(folder, path, descriptor)
            with _removed_on_error(path, descriptor):
                _require_free(folder)  # another process may have finished it
                empty_folder(path, descriptor)
                yield path
                _require_free(folder)
                _make_room(folder, descriptor, limit)
                path.rename(folder)
    except (KeyboardInterrupt, SystemExit):  # a signal came before the folder was locked
        with contextlib.suppress(OSError):
            path.rmdir()
        raise
    sync_folder(folder.parent)


def _require_lock(folder: Path, path: Path, descriptor: int | None) -> None:
    if descriptor is None:
        return
    is_ours = lock(descriptor) is not False
    # If it is at its place no longer, another process has published it since.
    if not is_ours or not is_surely_at(path, descriptor):
        raise OutputError(
            f"{folder} is being written by another process",
            remedy="Wait for it or choose another name",
        )


@contextlib.contextmanager
def _removed_if_unknown(path: Path) -> Iterator[None]:
    """Remove the empty folder if the system fails to say whether another process has it."""
    try:
        yield
    except OutputError:
        raise
    except OSError:
        with contextlib.suppress(OSError):
            path.rmdir()
        raise


@contextlib.contextmanager
def _removed_on_error(path: Path, descriptor: int | None) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            remove_folder(path, descriptor)
        raise


def _make_room(folder: Path, descriptor: int | None, limit: ReadersLimit) -> None:
    """Remove the empty folder to replace, if it exists; the new one gets its mode."""
    if not folder.is_dir():
        return
    if descriptor is not None:
        mode = stat.S_IMODE(folder.stat().st_mode)
        os.fchmod(descriptor, limit.mode(mode, os.fstat(descriptor).st_gid))
    folder.rmdir()


def _require_free(folder: Path) -> None:
    if not folder.parent.is_dir():
        raise OutputError(f"the folder {folder.parent} does not exist", remedy="Create it first")
    if folder.is_dir() and folder.samefile(Path()):
        raise OutputError(
            f"{folder} is the current folder, which cannot be replaced",
            remedy="Name a new folder inside it",
        )
    is_free = not os.path.lexists(folder) or (
        folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir())
    )
    if not is_free:
        raise OutputError(
            f"{folder} exists and is not empty",
            remedy="Name a new folder; export never overwrites files",
        )
