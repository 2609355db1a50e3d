"""The journal of an edit in place: both headers, to finish, undo and redo the edit.

An edit in place has four steps, each synced to disk before the next: the journal appears complete
under its name; the file is changed; the file is synced; the journal is renamed, and `undo` uses it
from then on. If the process ends in between, the journal shows how far the edit came. It also keeps
the headers of earlier edits, so that several can be undone.
"""

from __future__ import annotations

import contextlib
import os
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

import numpy as np

from ggufkit.errors import FormatError, OutputError
from ggufkit.system import hidden_files
from ggufkit.system.cancellation import pause
from ggufkit.system.descriptors import BINARY, AnyPath, as_path, close, lock, read_at, sync_folder
from ggufkit.system.readers_limit import PRIVATE_LIMIT
from ggufkit.system.staging import write_whole

MAX_BYTES: Final = 1 << 30  # of a journal, which is read into memory; real ones have a few MiB
WAIT_SECONDS: Final = 60.0  # for another edit of the same file to end
POLL_SECONDS: Final = 0.05
MAX_STEPS: Final = 8  # that can be undone
MAX_HISTORY: Final = 64 << 20  # bytes of headers kept for undo, besides the last edit's
SAMPLE: Final = 64 << 10  # bytes at each end of the tensor data that identify it
_MAGIC: Final = b"ggufkit journal 2\n"
_NUMBERS: Final = struct.Struct("<QQQQQQ")
_LENGTH: Final = struct.Struct("<Q")
_DIGEST_BYTES: Final = 32  # of SHA-256

EditState = Literal["before", "after", "between", "half moved", "foreign"]


@dataclass(frozen=True)
class EditJournal:
    """A change of a file: all bytes before its data, before and after the change.

    The rest of the file keeps its content and only moves. `inodes` are the file's inode numbers
    before and after the change; they differ if it is copied. `nbytes` is its size before; `data` is
    the digest of samples of its tensor data. `past` are the headers that further undos restore, the
    oldest first, and `future` the headers that redos restore.
    """

    inodes: tuple[int, int]
    nbytes: int
    old: bytes
    new: bytes
    data: bytes
    past: tuple[bytes, ...] = ()
    future: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, descriptor: int, old: bytes, new: bytes) -> EditJournal:
        """Return the journal of an edit of an open file whose present header is `old`."""
        status = os.fstat(descriptor)
        data = _sample_digest(descriptor, len(old), status.st_size)
        return cls((status.st_ino, status.st_ino), status.st_size, old, new, data, (old,))

    def after(self, earlier: EditJournal | None) -> EditJournal:
        """Return this edit with the history of the edit before it."""
        parts = [self.old]
        bytes_left = MAX_HISTORY
        for state in reversed(earlier.past if earlier else ()):
            bytes_left -= len(state)
            if bytes_left < 0 or len(parts) == MAX_STEPS:
                break
            parts.insert(0, state)
        return replace(self, past=tuple(parts), future=())

    @property
    def undone(self) -> EditJournal | None:
        """The change that undoes the last edit; None if there is nothing to undo."""
        if not self.past:
            return None
        return self._step(self.past[-1], self.past[:-1], (self.new, *self.future))

    @property
    def redone(self) -> EditJournal | None:
        """The change that repeats an undone edit; None if there is nothing to redo."""
        if not self.future:
            return None
        return self._step(self.future[0], (*self.past, self.new), self.future[1:])

    def _step(
        self, state: bytes, past: tuple[bytes, ...], future: tuple[bytes, ...]
    ) -> EditJournal:
        inodes = (self.inodes[1], self.inodes[1])
        nbytes = self.nbytes + self.shift
        return EditJournal(inodes, nbytes, self.new, state, self.data, past, future)

    @property
    def shift(self) -> int:
        """The bytes by which the data moves."""
        return len(self.new) - len(self.old)

    def encode(self) -> bytes:
        """Return the content of the journal's file."""
        is_undo = not self.past or self.past[-1] != self.old
        states = (*self.past, self.new, *self.future)
        numbers = _NUMBERS.pack(*self.inodes, self.nbytes, len(self.past), is_undo, len(states))
        lengths = (_LENGTH.pack(len(state)) for state in states)
        content = b"".join((_MAGIC, numbers, *lengths, self.data, *states))
        return content + _sha256(content)

    @classmethod
    def decode(cls, data: bytes) -> EditJournal | None:
        """Return the journal in the content of a file; None if it is damaged or something else."""
        content, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
        begin = len(_MAGIC) + _NUMBERS.size
        if len(content) < begin or not content.startswith(_MAGIC):
            return None
        if _sha256(content) != digest:
            return None
        before, after, nbytes, start, is_undo, count = _NUMBERS.unpack_from(content, len(_MAGIC))
        origin = start + 1 if is_undo else start - 1  # index of the header before the change
        if not 0 <= origin < count or start >= count or count * _LENGTH.size > len(content) - begin:
            return None
        lengths = [_LENGTH.unpack_from(content, begin + i * _LENGTH.size)[0] for i in range(count)]
        begin += count * _LENGTH.size + _DIGEST_BYTES
        if begin + sum(lengths) != len(content):
            return None
        ends = [begin + sum(lengths[: i + 1]) for i in range(count)]
        states = [content[end - size : end] for end, size in zip(ends, lengths, strict=True)]
        sample = content[begin - _DIGEST_BYTES : begin]
        past, future = tuple(states[:start]), tuple(states[start + 1 :])
        return cls((before, after), nbytes, states[origin], states[start], sample, past, future)

    def state(self, descriptor: int, *, any_inode: bool = False) -> EditState:
        """Return how far the edit of an open file got; "foreign" if the journal is of another file.

        The file's inode is compared unless `any_inode`; its size, header and samples of its data
        always are.
        """
        status = os.fstat(descriptor)
        is_before, is_after = (any_inode or status.st_ino == inode for inode in self.inodes)
        if is_before and self._is(descriptor, status.st_size, self.nbytes, self.old):
            return "before"
        if not is_after or status.st_size != self.nbytes + self.shift:
            return "foreign"
        if self._is(descriptor, status.st_size, status.st_size, self.new):
            return "after"
        if self.inodes[0] != self.inodes[1]:  # a copy replaces the file in one step
            return "foreign"
        is_mixed = self._is_mixture(read_at(descriptor, len(self.new), 0))
        if is_mixed and self._has_data(descriptor, len(self.new)):
            return "between"
        return "half moved" if self.shift else "foreign"

    def _is(self, descriptor: int, size: int, nbytes: int, header: bytes) -> bool:
        """Whether an open file of `size` bytes has `nbytes`, this header and this data."""
        return (
            size == nbytes
            and len(header) <= nbytes
            and read_at(descriptor, len(header), 0) == header
            and self._has_data(descriptor, len(header))
        )

    def _has_data(self, descriptor: int, begin: int) -> bool:
        nbytes = os.fstat(descriptor).st_size
        return _sample_digest(descriptor, begin, nbytes) == self.data

    def _is_mixture(self, actual: bytes) -> bool:
        """Whether each byte is from the new header, or from the old one at its new place."""
        moved = self.old[-self.shift :] if self.shift < 0 else bytes(self.shift) + self.old
        now, new, old = (np.frombuffer(part, np.uint8) for part in (actual, self.new, moved))
        return bool(((now == new) | (now == old)).all())


def _sample_digest(descriptor: int, begin: int, nbytes: int) -> bytes:
    """Return the digest of the first and last bytes of the data from `begin` on."""
    size = max(0, min(SAMPLE, nbytes - begin))
    return _sha256(read_at(descriptor, size, begin) + read_at(descriptor, size, nbytes - size))


def _sha256(data: bytes) -> bytes:
    import hashlib  # noqa: PLC0415 (loads OpenSSL)

    return hashlib.sha256(data).digest()


def real(path: AnyPath) -> Path:
    """Resolve links to the file itself: its journal is in the same folder."""
    return Path(os.path.realpath(as_path(path)))


def is_pending(target: Path) -> bool:
    """Whether an edit of a file was started and not finished, by the names of files."""
    return os.path.lexists(hidden_files.hidden(target, hidden_files.EDIT))


def pending(target: Path) -> EditJournal | None:
    """Return the journal of a running or interrupted edit; errors as `_load`."""
    return _load(hidden_files.hidden(target, hidden_files.EDIT))


def last(target: Path) -> EditJournal | None:
    """Return the journal of the last finished change; errors as `_load`."""
    return _load(hidden_files.hidden(target, hidden_files.UNDO))


def last_of(target: Path, descriptor: int) -> EditJournal | None:
    """Return the edit that made the file's present state, even if it was interrupted."""
    for load in (pending, last):
        with contextlib.suppress(FormatError, hidden_files.ForeignFileError):
            journal = load(target)
            if journal and journal.state(descriptor) in ("between", "after"):
                return journal
    return _of_renamed(target, descriptor)


def _of_renamed(target: Path, descriptor: int) -> EditJournal | None:
    """Return the last edit of a file that was renamed since, and rename the journal too."""
    for path in target.parent.glob(f".*{hidden_files.UNDO}"):
        old = path.with_name(path.name.removeprefix(".").removesuffix(hidden_files.UNDO))
        with contextlib.suppress(FormatError, OSError):
            journal = None if os.path.lexists(old) else _load(path)
            if journal and journal.state(descriptor) == "after":
                follow(old, target)
                return journal
    return None


def publish(target: Path, journal: EditJournal) -> None:
    """Write the journal next to its file, complete and synced to disk.

    Raises ForeignFileError (an OutputError) if a foreign file has the name for undo.
    """
    content = journal.encode()
    if len(content) > MAX_BYTES:
        raise OutputError(
            f"the header of {target} is too large to be edited in place",
            remedy="Write a copy with `ggufkit edit IN --output OUT`",
        )
    for suffix in (hidden_files.UNDO, hidden_files.EDIT):
        path = hidden_files.hidden(target, suffix)
        with contextlib.suppress(FileNotFoundError):
            hidden_files.require_own(path.lstat(), path)
    write_whole(path, content, limit=PRIVATE_LIMIT)
    sync_folder(target.parent)


def finish(target: Path) -> None:
    """Keep the journal for `undo`; it replaces the one before."""
    path = hidden_files.hidden(target, hidden_files.EDIT)
    path.replace(hidden_files.hidden(target, hidden_files.UNDO))
    sync_folder(target.parent)


def withdraw(target: Path) -> None:
    """Remove the journal of a change that did not happen."""
    _remove(hidden_files.hidden(target, hidden_files.EDIT))


def forget(target: Path) -> None:
    """Remove the journal of the last change, which cannot be undone any more."""
    with contextlib.suppress(OSError):
        _remove(hidden_files.hidden(target, hidden_files.UNDO))


def _remove(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        hidden_files.require_own(path.lstat(), path)
        path.unlink()
        sync_folder(path.parent)


def follow(old: Path, new: Path) -> None:
    """Rename the journal of the last change with its file, if possible."""
    path = hidden_files.hidden(old, hidden_files.UNDO)
    with contextlib.suppress(OSError):
        hidden_files.require_own(path.lstat(), path)
        path.replace(hidden_files.hidden(new, hidden_files.UNDO))


def _load(path: Path) -> EditJournal | None:
    """Return the journal in a file, None if there is no file.

    Raises FormatError for a damaged journal, and ForeignFileError for a file that this user's
    ggufkit did not make.
    """
    try:
        descriptor = hidden_files.open_own(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        nbytes = os.fstat(descriptor).st_size
        beginning = read_at(descriptor, min(nbytes, len(_MAGIC)), 0)
        is_journal = beginning == _MAGIC and nbytes <= MAX_BYTES
        content = read_at(descriptor, nbytes, 0) if is_journal else b""
    finally:
        close(descriptor)
    journal = EditJournal.decode(content)
    if journal is not None:
        return journal
    raise FormatError(
        "this is not a journal of ggufkit, or it is damaged",
        remedy="Remove it if you have since replaced the model file",
        path=str(path),
    )


class BusyError(OutputError):
    """Another process is editing the file."""


@contextlib.contextmanager
def exclusively(target: Path) -> Iterator[int]:
    """Open a file for reading and writing, locked against other edits; wait for a running one."""
    descriptor = _locked(target)
    try:
        yield descriptor
    finally:
        close(descriptor)


def _locked(target: Path) -> int:
    """Lock a file that is still in its place; wait for another edit to end."""
    until = time.monotonic() + WAIT_SECONDS
    while True:
        descriptor = os.open(target, os.O_RDWR | BINARY)
        try:
            is_taken = lock(descriptor) is not False
            if is_taken and os.path.samestat(os.fstat(descriptor), target.stat()):
                return descriptor
        except BaseException:
            close(descriptor)
            raise
        close(descriptor)
        if time.monotonic() >= until:
            raise BusyError(
                f"{target} is being edited by another process", remedy="Wait for it, and try again"
            )
        if not is_taken:  # else another file replaced the locked one
            pause(POLL_SECONDS)
