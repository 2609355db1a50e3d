"""Give files new names: all of them or none, and never the name of another file."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from ggufkit.errors import OutputError
from ggufkit.system.cancellation import shield

Pairs = Sequence[tuple[Path, Path]]

# The errors of a file system without hard links.
_NO_LINKS: Final = {
    errno.EPERM,
    errno.EMLINK,
    errno.ENOSYS,
    getattr(errno, "ENOTSUP", errno.ENOSYS),
    getattr(errno, "EOPNOTSUPP", errno.ENOSYS),
}


def _no_link(*_: object) -> None:
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


hard_link: Any = getattr(os, "link", _no_link)


def rename_files(pairs: Pairs) -> None:
    """Rename each first path of `pairs` to its second.

    Every file gets its new name before any loses its old one: whenever the process ends, the whole
    set exists under the old names or the new. Raises OutputError for a link and for a name that is
    taken; then nothing is renamed.
    """
    todo = [(old, new) for old, new in pairs if old != new]
    for old, new in todo:
        if old.is_symlink():
            raise OutputError(
                f"{old} is a link to {old.readlink()}, as in the caches of other programs",
                remedy="Copy the model to another folder, and rename it there",
            )
        if os.path.lexists(new) and not _is_same(old, new) and not _is_linked(old, new):
            raise OutputError(
                f"{new} already exists", remedy="Move that file away first; nothing was renamed"
            )
    try:
        with shield():
            _rename(todo)
    except OSError as error:
        raise OutputError(
            f"renaming {error.filename or todo[0][0]}: {error.strerror or error}",
            remedy="Nothing was renamed",
        ) from error


def _is_same(old: Path, new: Path) -> bool:
    """Whether two spellings name one entry, as on a file system that ignores case."""
    return old.parent == new.parent and old.name.lower() == new.name.lower() and new.samefile(old)


def _is_linked(old: Path, new: Path) -> bool:
    """Whether a file already has both names, as after a killed rename."""
    return not new.is_symlink() and new.samefile(old)


def _rename(pairs: Pairs) -> None:
    respelled = [pair for pair in pairs if os.path.lexists(pair[1]) and _is_same(*pair)]
    others = [pair for pair in pairs if pair not in respelled]
    try:
        _link(others)
        for old, _ in others:
            old.unlink()
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        _move(others)
    _move(respelled)


def _link(pairs: Pairs) -> None:
    with _undone_on_failure() as undo:
        for old, new in reversed(pairs):  # the first shard last, as when writing
            if not os.path.lexists(new):
                hard_link(old, new)
                undo.append(new.unlink)


def _move(pairs: Pairs) -> None:
    with _undone_on_failure() as undo:
        for old, new in reversed(pairs):
            old.rename(new)
            undo.append(functools.partial(new.rename, old))


@contextlib.contextmanager
def _undone_on_failure() -> Iterator[list[Callable[[], object]]]:
    """Provide a list for functions that undo finished steps; they run if a later step fails."""
    undo: list[Callable[[], object]] = []
    try:
        yield undo
    except BaseException:
        for step in reversed(undo):
            with contextlib.suppress(OSError):
                step()
        raise
