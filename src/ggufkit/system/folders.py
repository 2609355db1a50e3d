"""Folders that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from ggufkit.errors import OutputError
from ggufkit.system.descriptors import close, lock, sync_folder
from ggufkit.system.hidden_files import (
    FOLDER,
    empty_folder,
    hidden,
    is_at,
    make_folder,
    open_own_folder,
    remove_empty_folder,
    remove_folder,
)
from ggufkit.system.readers_limit import NO_LIMIT, ReadersLimit, group_of_new_files


class HiddenFolder:
    """A context that owns a hidden folder, until `publish` gives it the name `target`.

    Otherwise it vanishes at the end. Only users within `limit` can ever enter it. Raises
    OutputError if `target` is not empty, or another process is making it, and ForeignFileError (an
    OutputError) if something else has the hidden folder's name.
    """

    def __init__(self, target: Path, limit: ReadersLimit = NO_LIMIT) -> None:
        _require_free(target)
        self.target = target
        self.limit = limit
        self.path: Path = hidden(target, FOLDER)
        self._descriptor: int | None = None
        self._is_made = False  # by this process, and another one may have locked it
        self._is_ours = False  # no other process writes it

    def __enter__(self) -> HiddenFolder:
        """Create the hidden folder, or take over and empty the one of a killed process."""
        try:
            self._take()
            _require_free(self.target)  # another process may have finished it
            empty_folder(self.path, self._descriptor)
            return self  # noqa: TRY300 (nothing comes between this and the block of `with`)
        except BaseException:
            self._remove()
            raise

    def __exit__(self, *_: object) -> None:
        self._remove()

    def publish(self) -> None:
        """Rename the folder to its target, replacing an empty one."""
        _require_free(self.target)
        _make_room(self.target, self._descriptor, self.limit)
        self.path.rename(self.target)
        self._is_ours = False
        sync_folder(self.target.parent)

    def _remove(self) -> None:
        """Remove the folder, unless it is published or another process has it."""
        with contextlib.suppress(OSError):
            if self._is_ours:
                remove_folder(self.path, self._descriptor)
            elif self._is_made:
                remove_empty_folder(self.path)
        self._is_ours = self._is_made = False
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            close(descriptor)

    def _take(self) -> None:
        """Create or open the folder, and lock it."""
        mode = self.limit.mode(0o777, group_of_new_files(self.target.parent))
        self._is_made = make_folder(self.path, mode)
        self._descriptor = open_own_folder(self.path, mode)
        if self._descriptor is not None and not self._is_locked(self._descriptor):
            self._is_made = False
            raise OutputError(
                f"{self.target} is being written by another process",
                remedy="Wait for it or choose another name",
            )
        self._is_made, self._is_ours = False, True

    def _is_locked(self, descriptor: int) -> bool:
        """Lock the folder; if it is at its place no longer, another process has published it."""
        return lock(descriptor) is not False and is_at(self.path, descriptor)


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
