"""The journal beside a file that is edited in place, and what is done after an interruption.

A change in place goes through four steps, each safe on disk before the next: the journal appears
whole under its name; the file is changed; the file is safe; the journal is renamed and from then
on is what `undo` restores. Where the process ends in between, the journal tells how far it came.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np

from ggufkit.errors import FormatError, OutputError
from ggufkit.system.descriptors import (
    BINARY,
    AnyPath,
    as_path,
    lock,
    naming,
    read_at,
    sync_folder,
    write_at,
)
from ggufkit.system.hidden_files import EDIT, UNDO, hidden
from ggufkit.system.readers_limit import PRIVATE_LIMIT
from ggufkit.system.staging import ATTEMPTS, Staging

MAX_BYTES: Final = 1 << 30  # of a journal, which is read whole; real ones have a few MiB
_MAGIC: Final = b"ggufkit journal 1\n"
_SIZES: Final = struct.Struct("<QQQ")
_DIGEST_BYTES: Final = hashlib.sha256().digest_size
# A journal is no link, and opening one that is a pipe must not wait for its writer.
_UNFOLLOWED: Final = (
    os.O_RDONLY | BINARY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
)
_READ_ONLY: Final = {errno.EACCES, errno.EPERM, errno.EROFS}

EditState = Literal["before", "after", "between", "half moved", "foreign"]
Outcome = Literal["nothing", "before", "after", "replaced"]


@dataclass(frozen=True)
class EditJournal:
    """A change of a file: its size and all bytes before the data, and these bytes afterwards.

    The rest of the file is the same before and after, only its place differs.
    """

    nbytes: int
    old: bytes
    new: bytes

    @property
    def shift(self) -> int:
        """How far the data moves."""
        return len(self.new) - len(self.old)

    @property
    def reversed(self) -> EditJournal:
        """The change that takes this one back."""
        return EditJournal(self.nbytes + self.shift, self.new, self.old)

    def encode(self) -> bytes:
        """Return the content of the journal's file."""
        sizes = _SIZES.pack(self.nbytes, len(self.old), len(self.new))
        content = b"".join((_MAGIC, sizes, self.old, self.new))
        return content + hashlib.sha256(content).digest()

    @classmethod
    def decode(cls, data: bytes) -> EditJournal | None:
        """Return the journal of a file's content; None if that is none, or not whole."""
        content, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
        begin = len(_MAGIC) + _SIZES.size
        if len(content) < begin or not content.startswith(_MAGIC):
            return None
        nbytes, old, new = _SIZES.unpack_from(content, len(_MAGIC))
        if len(content) != begin + old + new or hashlib.sha256(content).digest() != digest:
            return None
        return cls(nbytes, content[begin : begin + old], content[begin + old :])

    def progress(self, descriptor: int) -> EditState:
        """Tell how far the change of an open file came."""
        nbytes = os.fstat(descriptor).st_size
        if nbytes == self.nbytes and read_at(descriptor, len(self.old), 0) == self.old:
            return "before"
        if nbytes != self.nbytes + self.shift:
            return "foreign"
        found = read_at(descriptor, len(self.new), 0)
        if found == self.new:
            return "after"
        if self._is_mixture(found):
            return "between"
        return "half moved" if self.shift else "foreign"

    def _is_mixture(self, found: bytes) -> bool:
        """Whether each byte is that of the new header, or of the old one where it moved to."""
        if len(found) != len(self.new):
            return False
        moved = self.old[-self.shift :] if self.shift < 0 else bytes(self.shift) + self.old
        now, new, old = (np.frombuffer(each, np.uint8) for each in (found, self.new, moved))
        return bool(((now == new) | (now == old)).all())


def real(path: AnyPath) -> Path:
    """Return the file itself, to which links may lead: beside it lies its journal."""
    return Path(os.path.realpath(as_path(path)))


def publish(target: Path, journal: EditJournal) -> None:
    """Put the journal beside its file, whole and safe on disk."""
    content = journal.encode()
    if len(content) > MAX_BYTES:
        raise OutputError(
            f"the header of {target} is too large to be edited in place",
            remedy="Write a copy with `ggufkit edit IN --output OUT`",
        )
    stage = Staging(hidden(target, EDIT), limit=PRIVATE_LIMIT)
    try:
        write_at(stage.descriptor, content, 0)
        stage.sync()
        stage.publish()
    finally:
        stage.discard()
    sync_folder(target.parent)


def finish(target: Path) -> None:
    """Keep the journal for `undo`, in the place of the one before."""
    os.replace(hidden(target, EDIT), hidden(target, UNDO))  # noqa: PTH105
    sync_folder(target.parent)


def withdraw(target: Path) -> None:
    """Remove the journal of a change that was not made."""
    hidden(target, EDIT).unlink(missing_ok=True)
    sync_folder(target.parent)


def last(target: Path) -> EditJournal | None:
    """Return the journal of the last change that was finished."""
    return _load(hidden(target, UNDO))


def forget(target: Path) -> None:
    """Remove the journal of the last change, which can no longer be undone."""
    hidden(target, UNDO).unlink(missing_ok=True)


def follow(old: Path, new: Path) -> None:
    """Have the journal of the last change go with a file that was renamed, where that can be."""
    if old != new:
        with contextlib.suppress(OSError):
            os.replace(hidden(old, UNDO), hidden(new, UNDO))  # noqa: PTH105


def _load(path: Path) -> EditJournal | None:
    try:
        descriptor = os.open(path, _UNFOLLOWED)
    except FileNotFoundError:
        return None
    try:
        found = os.fstat(descriptor)
        nbytes, is_possible = (
            found.st_size,
            stat.S_ISREG(found.st_mode) and found.st_size <= MAX_BYTES,
        )
        journal = EditJournal.decode(read_at(descriptor, nbytes, 0)) if is_possible else None
    finally:
        os.close(descriptor)
    if journal is None:
        raise FormatError(
            "this is not a journal of ggufkit, or it is damaged",
            remedy="Remove it if you have since replaced the model file",
            path=str(path),
        )
    return journal


class BusyError(OutputError):
    """Another process is editing the file."""


@contextlib.contextmanager
def exclusively(target: Path) -> Iterator[int]:
    """Lend a file open for reading and writing, and locked against other edits."""
    descriptor = _locked(target)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _locked(target: Path) -> int:
    for _ in range(ATTEMPTS):
        descriptor = os.open(target, os.O_RDWR | BINARY)
        try:
            is_taken = lock(descriptor) is not False
            if is_taken and os.path.samestat(os.fstat(descriptor), target.stat()):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        if not is_taken:
            break  # else another file took the place of the one that was locked
    raise BusyError(
        f"{target} is being edited by another process", remedy="Wait for it, and try again"
    )


def settle(target: Path) -> Outcome:
    """Do what `recover` does for the file itself, at next to no cost where there is nothing."""
    remains = hidden(target, EDIT)
    if not os.path.lexists(remains):
        return "nothing"
    try:
        with naming(target), exclusively(target) as descriptor:
            journal = _load(remains)
            if journal is None:  # another process was faster
                return "nothing"
            return _settled(target, descriptor, journal)
    except BusyError as error:  # it lives, and will finish what it began
        return _as_it_is(target, remains, error)
    except OSError as error:
        if error.errno not in _READ_ONLY:
            raise
        return _as_it_is(target, remains, error)


def _settled(target: Path, descriptor: int, journal: EditJournal) -> Outcome:
    progress = _known(journal, descriptor, target)
    if progress in ("before", "foreign"):
        withdraw(target)
        return "before" if progress == "before" else "replaced"
    if progress == "between":
        write_at(descriptor, journal.new, 0)
    os.fsync(descriptor)
    finish(target)
    return "after"


def _known(journal: EditJournal, descriptor: int, target: Path) -> EditState:
    """Tell how far the change came; raise where the system failed while it moved blocks."""
    progress = journal.progress(descriptor)
    if progress == "half moved":
        raise FormatError(
            "an edit of this file was interrupted while its data moved, and the file is damaged",
            remedy=f"Download the file again, then remove {hidden(target, EDIT)}",
            path=str(target),
        )
    return progress


def _as_it_is(target: Path, remains: Path, error: OSError) -> Outcome:
    """Tell what can be read without writing; raise where that would be a mixture."""
    journal = _load(remains)
    if journal is None:
        return "nothing"
    descriptor = os.open(target, os.O_RDONLY | BINARY)
    try:
        progress = _known(journal, descriptor, target)
    finally:
        os.close(descriptor)
    if progress == "between":
        raise OutputError(
            f"an edit of {target} was started, but cannot be finished: {error.strerror or error}",
            remedy="Try again, or run `ggufkit recover` where you can write the file",
        ) from error
    names: dict[EditState, Outcome] = {"before": "before", "after": "after"}
    return names.get(progress, "replaced")
