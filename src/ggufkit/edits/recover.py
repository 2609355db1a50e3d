"""Recover files whose edit in place was interrupted."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Literal

from ggufkit.format.file_name import parse_shard_name
from ggufkit.models.caches import resolve
from ggufkit.models.interrupted_edit import state_of
from ggufkit.system import edit_journal
from ggufkit.system.cancellation import shield
from ggufkit.system.descriptors import AnyPath, as_path, naming, write_at
from ggufkit.system.edit_journal import real
from ggufkit.system.hidden_files import EDIT, PART, ForeignFileError, hidden
from ggufkit.system.staging import remove_leftover

Outcome = Literal["nothing", "before", "after", "replaced"]


def recover(path: AnyPath, *, force: bool = False) -> Outcome:
    """Bring a file whose edit was interrupted to the state before or after it.

    `path` may also be any shard of a set, a folder, or the name of a cached model: all its files
    are checked. Returns "before" or "after"; "nothing" if no edit was interrupted, and "replaced"
    if another file has replaced it since. `force` follows a journal even if the file was copied
    since. Raises FormatError for a damaged journal, ForeignFileError (an OSError) for a journal
    that this user did not make, OSError if the file must be written and cannot be.
    """
    target = resolve(as_path(path))
    target.stat()  # raises FileNotFoundError if the file is missing
    outcomes = [_recovered(real(file), force=force) for file in _files(target)]
    return next((outcome for outcome in outcomes if outcome != "nothing"), "nothing")


def _files(target: Path) -> list[Path]:
    """Return the file, all present shards of its set, or the models of a folder."""
    if target.is_dir():
        return sorted(path for path in target.glob("*.gguf") if path.is_file())
    shard = parse_shard_name(target.name)
    if shard is None:
        return [target]
    others = [(parse_shard_name(path.name), path) for path in target.parent.iterdir()]
    return sorted(path for parsed, path in others if parsed and parsed[::2] == shard[::2])


def _recovered(target: Path, *, force: bool) -> Outcome:
    for leftover in (hidden(hidden(target, EDIT), PART), hidden(target, PART)):
        with contextlib.suppress(ForeignFileError):
            remove_leftover(leftover)
    return settle(target, force=force)


def settle(target: Path, *, force: bool = False) -> Outcome:
    """Recover the file itself; this takes almost no time if no edit was interrupted."""
    if not edit_journal.is_pending(target):
        return "nothing"
    with shield(), naming(target), edit_journal.exclusively(target) as descriptor:
        journal = edit_journal.pending(target)
        if journal is None:  # another process was faster
            return "nothing"
        state = state_of(target, journal, descriptor, force=force)
        if state in ("before", "foreign"):
            edit_journal.withdraw(target)
            return "before" if state == "before" else "replaced"
        if state == "between":
            write_at(descriptor, journal.new, 0)
        os.fsync(descriptor)
        edit_journal.finish(target)
        return "after"
