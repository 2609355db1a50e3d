"""Folders that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ggufkit.errors import OutputError
from ggufkit.system.descriptors import close, lock, sync_folder
from ggufkit.system.staging import sibling

SUFFIX: Final = ".ggufkit-folder"


@contextlib.contextmanager
def appearing(folder: Path) -> Iterator[Path]:
    """Lend a hidden folder that takes the place of `folder` at the end, or vanishes on an error.

    Raises OutputError where `folder` holds something, or another process is making it.
    """
    _require_free(folder)
    hidden = sibling(folder, SUFFIX)
    with contextlib.ExitStack() as opened:
        _take(hidden, folder, opened)
        try:
            _require_free(folder)  # of others that were making it, one may be done
            _clear(hidden)
            yield hidden
            _require_free(folder)
            if folder.is_dir():
                folder.rmdir()
            hidden.rename(folder)
        except BaseException:
            shutil.rmtree(hidden, ignore_errors=True)
            raise
    sync_folder(folder.parent)


def _require_free(folder: Path) -> None:
    if not folder.parent.is_dir():
        raise OutputError(f"the folder {folder.parent} does not exist", remedy="Create it first")
    if folder.is_dir() and folder.samefile(Path()):
        raise OutputError(
            f"{folder} is the current folder, which cannot be replaced",
            remedy="Name a new folder in it",
        )
    is_free = not os.path.lexists(folder) or (
        folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir())
    )
    if not is_free:
        raise OutputError(
            f"{folder} is there and not empty",
            remedy="Name a new folder: what is there is never overwritten",
        )


def _take(hidden: Path, folder: Path, opened: contextlib.ExitStack) -> None:
    """Make the hidden folder and lock it."""
    hidden.mkdir(exist_ok=True)
    try:
        is_locked = _lock(hidden, opened)
    except BaseException:
        with contextlib.suppress(OSError):  # another process fills it
            hidden.rmdir()
        raise
    if not is_locked:
        raise OutputError(
            f"{folder} is being written by another process",
            remedy="Wait for it or choose another name",
        )


def _lock(hidden: Path, opened: contextlib.ExitStack) -> bool:
    """Lock a folder until `opened` ends; say whether nobody else has."""
    try:
        descriptor = os.open(hidden, os.O_RDONLY)
    except PermissionError:  # Windows opens no folders
        return True
    opened.callback(close, descriptor)
    return lock(descriptor) is not False


def _clear(hidden: Path) -> None:
    """Remove what a killed process left."""
    for path in hidden.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
