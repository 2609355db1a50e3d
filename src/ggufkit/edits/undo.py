"""Undo edits in place, one after the other, and redo them."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path
from typing import NoReturn

from ggufkit.edits.changes import changes
from ggufkit.edits.in_place import Edited, EditPlan, apply, editable
from ggufkit.errors import FormatError, OutputError
from ggufkit.format.header import parse
from ggufkit.models.interrupted_edit import header_to_show, require_header_change
from ggufkit.models.open import first_file
from ggufkit.system import edit_journal
from ggufkit.system.descriptors import AnyPath, naming
from ggufkit.system.mapped_file import MappedFile
from ggufkit.system.threads import Progress


def undo(path: AnyPath, *, force: bool = False, progress: Progress | None = None) -> Edited:
    """Undo the last edit in place. The next call undoes the edit before it.

    The header is restored byte for byte, and tensor data moves back to its place. `path`,
    `progress` and `force` work as in `edit_in_place`. Raises OutputError if there is no edit to
    undo, and FormatError if something else has changed the file since. It compares the size, the
    header, and the first and last 64 KiB of the tensor data; other tensor data is not read.
    """
    return apply(plan_undo(path, force=force), progress=progress)


def redo(path: AnyPath, *, force: bool = False, progress: Progress | None = None) -> Edited:
    """Repeat the edit that `undo` undid last; arguments and errors as for `undo`."""
    return apply(plan_undo(path, force=force, again=True), progress=progress)


def plan_undo(path: AnyPath, *, force: bool = False, again: bool = False) -> EditPlan:
    """Plan what `undo`, or `redo` if `again`, does, and change nothing."""
    target = editable(first_file(path), force=force)
    with contextlib.closing(MappedFile(target)) as mapped:
        header_to_show(mapped)  # warns if an edit was interrupted
    with naming(target), target.open("rb") as file:
        record = edit_journal.last_of(target, file.fileno())
    change = record and (record.redone if again else record.undone)
    if not change:
        _refuse_undo(target, is_known=record is not None, verb="redo" if again else "undo")
    require_header_change(target, change)
    now = parse(change.old, change.nbytes)
    then = parse(change.new, change.nbytes + change.shift)
    return EditPlan(
        target,
        tuple(changes(now.metadata, then.metadata)),
        change,
        again=partial(plan_undo, path, force=force, again=again),
    )


def _refuse_undo(target: Path, *, is_known: bool, verb: str) -> NoReturn:
    """Raise an error that says why nothing can be undone or redone."""
    if not is_known and edit_journal.last(target) is not None:
        raise FormatError(
            f"the file is not as its last edit left it, so ggufkit cannot {verb} that edit",
            remedy="Something else changed the file since; edit it again",
            path=str(target),
        )
    raise OutputError(
        f"{target} has no edit to {verb}",
        remedy=f"Up to {edit_journal.MAX_STEPS} edits in place are kept, in a hidden file next to "
        "the model: if you moved the model to another folder, move .NAME.ggufkit-undo too",
    )
