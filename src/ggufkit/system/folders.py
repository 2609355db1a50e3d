"""Folders that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from pathlib import Path

from ggufkit.errors import OutputError
from ggufkit.system.descriptors import close, lock, sync_folder
from ggufkit.system.hidden_files import FOLDER, hidden, is_at, open_own_folder
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

    def __enter__(self) -> HiddenFolder:
        """Create the hidden folder, in place of the one of a killed process."""
        with contextlib.suppress(FileNotFoundError):
            self._lock()
            self._remove()
        mode = self.limit.mode(0o777, group_of_new_files(self.target.parent))
        try:
            self.path.mkdir(mode)
            self._lock()
            _require_free(self.target)  # another process may have finished it
        except FileExistsError:
            raise self._refusal() from None
        except BaseException:
            with contextlib.suppress(OSError):  # another process has filled or published it
                self.path.rmdir()
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._remove()

    def publish(self) -> None:
        """Rename the folder to its target, replacing an empty one."""
        _require_free(self.target)
        _make_room(self.target, self._descriptor, self.limit)
        self.path.rename(self.target)
        sync_folder(self.target.parent)

    def _lock(self) -> None:
        """Open and lock the folder; OutputError if another process has it, or published it."""
        self._descriptor = open_own_folder(self.path)
        if self._descriptor is None:
            return
        try:
            if lock(self._descriptor) is False or not is_at(self.path, self._descriptor):
                raise self._refusal()
        except OSError:
            self._close()
            raise

    def _remove(self) -> None:
        """Remove the folder, unless it is published or another one is now in its place."""
        try:
            if self._descriptor is None or is_at(self.path, self._descriptor):
                shutil.rmtree(self.path)
        finally:
            self._close()

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            close(descriptor)

    def _refusal(self) -> OutputError:
        return OutputError(
            f"{self.target} is being written by another process",
            remedy="Wait for it or choose another name",
        )


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
