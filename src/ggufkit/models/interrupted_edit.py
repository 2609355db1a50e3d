"""Files whose edit in place was interrupted: what reading them shows, without changing them.

The journal is in the folder of the file, where other users may put a forged one. It is followed
only if this user made it for this file, and if it changes nothing but the header.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Final

from ggufkit.errors import FormatError, InterruptedEditWarning
from ggufkit.format.header import parse
from ggufkit.system import edit_journal
from ggufkit.system.descriptors import is_locked
from ggufkit.system.edit_journal import EditJournal, EditState
from ggufkit.system.hidden_files import EDIT, ForeignFileError, hidden
from ggufkit.system.mapped_file import MappedFile

_SHOWN: Final[dict[EditState, str]] = {
    "before": "an edit of {path} was interrupted before it changed the file; it is shown as it is",
    "after": "an edit of {path} was interrupted after it changed the file; it is shown as edited",
    "between": "an edit of {path} was interrupted; the state after the edit is shown, and the file "
    "is not changed",
    "foreign": "the journal next to {path} belongs to another file, and is not followed",
}
_STACK_LEVEL: Final = 6  # of warnings: the caller of `ggufkit.open`


def header_to_show(file: MappedFile) -> bytes | None:
    """Return the header to show instead of the file's own; None to show the file unchanged.

    Warns of an interrupted edit. Raises FormatError where no state of the file can be shown.
    """
    target = edit_journal.real(file.path)
    if not edit_journal.is_pending(target):
        return None
    try:
        journal = edit_journal.pending(target)
    except ForeignFileError as error:
        _warn(f"{error.message}, and is not followed")
        return None
    if journal is None or not file.same_file(target):  # an edit has ended since
        return None
    with file.borrowed() as descriptor:
        state = state_of(target, journal, descriptor)
        is_going_on = is_locked(descriptor)
    # An edit that goes on, or has ended meanwhile, was not interrupted.
    if not is_going_on and file.same_file(target) and edit_journal.pending(target) == journal:
        _warn(f"{_SHOWN[state].format(path=target)}. `ggufkit recover {target}` completes it")
    return journal.new if state == "between" else None


def _warn(message: str) -> None:
    warnings.warn(message, InterruptedEditWarning, stacklevel=_STACK_LEVEL)


def state_of(
    target: Path, journal: EditJournal, descriptor: int, *, force: bool = False
) -> EditState:
    """Return how far an edit got.

    Raises FormatError for a journal that would change more than the header, if the file was copied
    since (unless `force`), and if the edit stopped while the data moved.
    """
    require_header_change(target, journal)
    state = journal.state(descriptor, any_inode=force)
    remains = hidden(target, EDIT)
    if state == "half moved":
        raise FormatError(
            "an edit of this file was interrupted while its data moved, and the file is damaged",
            remedy=f"Download the file again, then remove {remains}",
            path=str(target),
        )
    if state == "foreign" and journal.state(descriptor, any_inode=True) == "between":
        raise FormatError(
            "an edit of this file was interrupted, and the file was copied since",
            remedy=f"Run `ggufkit recover --force` on it if {remains} was copied with it, or "
            "download the file again",
            path=str(target),
        )
    return state


def require_header_change(target: Path, journal: EditJournal) -> None:
    """Raise FormatError for a journal that changes more of a file than its header."""
    old = parse(journal.old, journal.nbytes)
    new = parse(journal.new, journal.nbytes + journal.shift)
    # Bytes must be all that a file has before its tensor data.
    fills = all(
        header.end > 0 and header.data_offset == len(content)
        for header, content in ((old, journal.old), (new, journal.new))
    )
    tensors = [[h.places.tensor(i) for i in range(len(h.places.infos.names))] for h in (old, new)]
    if not fills or tensors[0] != tensors[1]:
        raise FormatError(
            "the journal of this file changes more than its header, and is not followed",
            remedy=f"Remove {hidden(target, EDIT)}: ggufkit did not make it",
            path=str(target),
        )
