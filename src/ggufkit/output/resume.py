"""What a killed job had done: a journal beside its output, which the next run goes on from.

The journal names the plan by a digest, so that nothing of another plan or input is taken over, and
lists runs of bytes with their checksums. Claims are checked before they are believed: a machine
that loses power may keep the journal and lose the bytes.
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
from ggufkit.output.layout import Plan
from ggufkit.system.mapped_file import MappedFile
from ggufkit.system.staging import sibling

SUFFIX: Final = ".ggufkit-journal"
_HEAD: Final = "ggufkit journal of plan {digest}\n"
_LINE: Final = re.compile(r"(\d{1,19}) (\d{1,19}) (\d{1,19}) ([0-9a-f]{8})\n", re.ASCII)


class ByteRun(NamedTuple):
    """A run of bytes: number of the file, offset, count."""

    file: int
    offset: int
    nbytes: int


class ResumeJournal:
    """The runs of bytes that are in their place, of one plan's files: `claims` by place."""

    def __init__(self, target: Path, plan: Plan, *, is_new: bool) -> None:
        """Begin the journal of `target`, or go on with it if the output `is_new` no more.

        Raises OutputError if what is there belongs to another plan.
        """
        self.path = journal_of(target)
        head = _HEAD.format(digest=digest(plan))
        self.claims: dict[ByteRun, int] = {} if is_new else self._read(head, target)
        mode = os.O_APPEND if self.claims else os.O_TRUNC
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | mode, 0o666)
        os.write(self._descriptor, b"\n" if self.claims else head.encode())

    def _read(self, head: str, target: Path) -> dict[ByteRun, int]:
        try:
            lines = self.path.read_text(encoding="ascii", errors="replace").splitlines(
                keepends=True
            )
        except FileNotFoundError:
            return {}
        if lines and lines[0] != head:
            raise OutputError(
                f"what is unfinished of {target} came of another input or other options",
                remedy="Repeat the command it was begun with, or write anew without resuming",
            )
        found = (_LINE.fullmatch(line) for line in lines[1:])  # the last may be torn
        return {ByteRun(*map(int, each.groups()[:3])): int(each[4], 16) for each in found if each}

    def add(self, place: ByteRun, checksum: int) -> None:
        """Note that bytes are in their place."""
        if self.claims.get(place) != checksum:
            line = f"{place.file} {place.offset} {place.nbytes} {checksum:08x}\n"
            os.write(self._descriptor, line.encode())

    def close(self) -> None:
        """Leave the journal for the next run."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def remove(self) -> None:
        """Remove the journal, for all is done."""
        self.close()
        self.path.unlink(missing_ok=True)


def journal_of(target: Path) -> Path:
    """Return where the journal of an output lies, whose first file is `target`."""
    return sibling(target, SUFFIX)


def digest(plan: Plan) -> str:
    """Return what tells a plan from others: its files, its operations and the inputs they read."""
    total = hashlib.sha256(__version__.encode())
    for file in plan.files:
        for text in _told((file.name, file.nbytes, file.head, file.extents)):
            total.update(text)
    return total.hexdigest()


def _told(value: Any) -> Iterable[bytes | memoryview]:  # noqa: ANN401 (whatever a source is made of)
    """Yield all that a value consists of, the same in every process that makes it alike."""
    yield type(value).__qualname__.encode()
    if isinstance(value, MappedFile):
        yield repr(tuple(value.identity)).encode()
    elif isinstance(value, np.ndarray):
        yield repr((value.dtype.str, value.shape)).encode()
        yield np.ascontiguousarray(value).reshape(-1).view(np.uint8).data
    elif isinstance(value, bool | int | float | str | bytes | None):
        yield repr(value).encode()
    elif isinstance(value, Mapping):
        yield from _all_told(part for pair in value.items() for part in pair)
    elif isinstance(value, tuple | list):
        yield from _all_told(value)
    elif dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        yield from _all_told(getattr(value, name) for name in names)
    else:
        yield _pickled(value)


def _all_told(values: Iterable[Any]) -> Iterable[bytes | memoryview]:
    for value in values:
        yield from _told(value)
    yield b"end"


def _pickled(value: object) -> bytes:
    with contextlib.suppress(pickle.PicklingError, TypeError, AttributeError):
        return pickle.dumps(value, 5)
    raise OutputError(
        f"a {type(value).__name__} among the sources does not tell what it reads, so that a "
        "killed job could not be resumed",
        remedy="Write without resuming",
    )
