"""Resume a killed job: a journal next to its output records the finished bytes.

The journal names the plan by a digest, so that bytes of another plan or input are never reused, and
lists runs of bytes with their checksums, which are verified before use: after a power failure the
journal may be there and the bytes lost.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import pickle
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from ggufkit._version import __version__
from ggufkit.errors import OutputError
from ggufkit.output.layout import Layout
from ggufkit.remote.range_file import RangeFile
from ggufkit.system.descriptors import close, read_at, write_at
from ggufkit.system.hidden_files import RESUME_JOURNAL, create, hidden, open_own
from ggufkit.system.mapped_file import MappedFile

MAX_BYTES: Final = 64 << 20  # of a journal; a model of 1 TiB needs 6 MiB
_HEAD: Final = "ggufkit resume journal 2, version {version}, plan {digest}\n"
_ANY_HEAD: Final = re.compile(r"ggufkit resume journal 2, version (\S+), plan [0-9a-f]{64}\n")
_LINE: Final = re.compile(r"(\d{1,19}) (\d{1,19}) (\d{1,19}) ([0-9a-f]{8})\n", re.ASCII)


class ByteRun(NamedTuple):
    """A run of bytes: file number, offset, count."""

    file: int
    offset: int
    nbytes: int


class ResumeJournal:
    """The finished runs of bytes of one plan's files; `checksums` has the checksum of each."""

    def __init__(self, target: Path, plan: Layout, *, is_new: bool) -> None:
        """Start the journal of `target`, or continue it unless the output `is_new`.

        Raises OutputError if the journal there belongs to another plan or another version of
        ggufkit, and ForeignFileError (an OutputError) if another user owns the file.
        """
        self.path: Path = journal_of(target)
        head = _HEAD.format(version=__version__, digest=digest(plan))
        self._descriptor, content = _opened(self.path)
        try:
            _require_head(content, head, target, is_new=is_new)
            is_continued = not is_new and content.startswith(head)
            start = content[: content.rfind("\n") + 1] if is_continued else head  # no torn record
            self.checksums: dict[ByteRun, int] = _checksums(start)
            os.ftruncate(self._descriptor, len(start) if is_continued else 0)
            if not is_continued:
                write_at(self._descriptor, head.encode(), 0)
            os.fsync(self._descriptor)
            self._nbytes = len(start)
        except BaseException:
            self.close()
            raise

    def add(self, place: ByteRun, checksum: int) -> None:
        """Record finished bytes."""
        if self.checksums.get(place) != checksum:
            line = f"{place.file} {place.offset} {place.nbytes} {checksum:08x}\n"
            write_at(self._descriptor, line.encode(), self._nbytes)
            self._nbytes += len(line)

    def close(self) -> None:
        """Leave the journal for the next run."""
        if self._descriptor >= 0:
            close(self._descriptor)
            self._descriptor = -1

    def remove(self) -> None:
        """Remove the journal. The output is in place, so an error here is suppressed."""
        self.close()
        with contextlib.suppress(OSError):
            self.path.unlink()


def journal_of(target: Path) -> Path:
    """Return the path of the journal of an output whose first file is `target`."""
    return hidden(target, RESUME_JOURNAL)


def _opened(path: Path) -> tuple[int, str]:
    """Open a journal, created if missing; return its descriptor and content."""
    try:
        descriptor = create(path)
    except FileExistsError:
        descriptor = open_own(path, os.O_RDWR)
    try:
        nbytes = os.fstat(descriptor).st_size
        _require_possible(nbytes, path)
        # A byte outside ASCII becomes one character, so that positions stay.
        return descriptor, read_at(descriptor, nbytes, 0).decode("latin-1")
    except BaseException:
        close(descriptor)
        raise


def _require_possible(nbytes: int, path: Path) -> None:
    if nbytes > MAX_BYTES:
        raise OutputError(
            f"{path} has {nbytes:,} bytes, more than any journal of ggufkit",
            remedy="Remove it, and write again without resuming",
        )


def _require_head(content: str, head: str, target: Path, *, is_new: bool) -> None:
    """Raise OutputError for a journal of another plan; a torn head belongs to none."""
    line = content[: content.find("\n") + 1]
    if is_new or line == head:
        return
    other = _ANY_HEAD.fullmatch(line)
    if other and other[1] != __version__:
        raise OutputError(
            f"the partial {target} was started by version {other[1]} of ggufkit, and this "
            f"is version {__version__}",
            remedy="Finish it with that version, or write again without resuming",
        )
    if other:
        raise OutputError(
            f"the partial {target} was started from another input or with other options",
            remedy="Repeat the command that started it, or write from the start without resuming",
        )


def _checksums(content: str) -> dict[ByteRun, int]:
    """Return the checksums in complete records; skip everything else."""
    matches = (_LINE.fullmatch(line) for line in content.splitlines(keepends=True)[1:])
    return {ByteRun(*map(int, match.groups()[:3])): int(match[4], 16) for match in matches if match}


def digest(plan: Layout) -> str:
    """Return a digest that identifies a plan: its files, its operations and their inputs."""
    total = hashlib.sha256(__version__.encode())
    for file in plan.files:
        for text in _parts_of((file.name, file.nbytes, file.head, file.extents)):
            total.update(text)
    return total.hexdigest()


def _parts_of(value: Any) -> Iterable[bytes | memoryview]:  # noqa: ANN401 (any part of a source)
    """Yield all parts of a value, the same in every process that builds an equal value."""
    yield type(value).__qualname__.encode()
    if isinstance(value, MappedFile | RangeFile):
        yield repr(tuple(value.identity)).encode()
    elif isinstance(value, np.ndarray):
        yield repr((value.dtype.str, value.shape)).encode()
        yield np.ascontiguousarray(value).reshape(-1).view(np.uint8).data
    elif isinstance(value, bool | int | float | str | bytes | None):
        yield repr(value).encode()
    elif isinstance(value, Mapping):
        yield from _all_parts(part for pair in value.items() for part in pair)
    elif isinstance(value, tuple | list):
        yield from _all_parts(value)
    elif dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        yield from _all_parts(getattr(value, name) for name in names)
    else:
        yield _pickled(value)


def _all_parts(values: Iterable[Any]) -> Iterable[bytes | memoryview]:
    for value in values:
        yield from _parts_of(value)
    yield b"end"


def _pickled(value: object) -> bytes:
    with contextlib.suppress(pickle.PicklingError, TypeError, AttributeError):
        return pickle.dumps(value, 5)
    raise OutputError(
        f"a {type(value).__name__} among the sources does not identify its data, so a "
        "killed job could not be resumed",
        remedy="Write without resuming",
    )
