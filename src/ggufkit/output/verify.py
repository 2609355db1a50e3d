"""Compare files that were copied from servers with the SHA-256 that the servers state.

The bytes of a remote file are its header, its tensors and the gaps between them. If outputs contain
all its tensors unchanged, in any order and number of files, its digest can be computed from them.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from ggufkit.errors import RemoteError
from ggufkit.output.layout import PlannedFile
from ggufkit.remote.server_file import ServerFile
from ggufkit.system.cancellation import check_cancelled
from ggufkit.system.descriptors import read_at
from ggufkit.system.threads import in_turn, pool_of

READ_BYTES: Final = 1 << 20
MOST_GAPS: Final = 1 << 20  # bytes between tensors; if more are missing, tensors were left out


class WrittenFile(NamedTuple):
    """A file that is written but not yet renamed: its plan, and its descriptor."""

    planned: PlannedFile
    descriptor: int


class CopiedRun(NamedTuple):
    """Bytes of a remote file from `start` on, and where they were written."""

    start: int
    nbytes: int
    descriptor: int
    offset: int


def verify_copies(written: Iterable[WrittenFile], threads: int) -> None:
    """Raise RemoteError if a file that was copied whole has another digest than its server states.

    Files whose tensors were copied in part, and files without a known SHA-256, are not
    checked.
    """
    checked = []
    runs_of: dict[ServerFile, list[CopiedRun]] = {}
    for planned, descriptor in written:
        for extent in planned.extents:
            span = extent.source.span
            if span and isinstance(span.file, ServerFile):
                run = CopiedRun(span.offset, span.nbytes, descriptor, extent.offset)
                runs_of.setdefault(span.file, []).append(run)
    for file, copied in runs_of.items():
        runs = sorted(set(copied))
        expected = _expected_digest(file)
        if expected and _gap_bytes(file, runs) <= MOST_GAPS:
            checked.append(functools.partial(_verify, file, runs, expected))
    if checked:
        with pool_of(max(1, min(threads, len(checked)))) as pool:
            for _ in in_turn(pool, checked, threads):
                pass


def _expected_digest(file: ServerFile) -> str:
    """Return the SHA-256 that a server states for a file, "" if it states none."""
    from ggufkit.remote.hub.hub import sha256_of  # noqa: PLC0415 (networks take long to import)

    return sha256_of(file)


def _gap_bytes(file: ServerFile, runs: list[CopiedRun]) -> int:
    """Return how many bytes after the header were not copied."""
    return sum(stop - start for start, stop in _gaps(file, runs) if start >= runs[0].start)


def _gaps(file: ServerFile, runs: list[CopiedRun]) -> Iterator[tuple[int, int]]:
    offset = 0
    for run in runs:
        if run.start > offset:
            yield offset, run.start
        offset = max(offset, run.start + run.nbytes)
    if file.nbytes > offset:
        yield offset, file.nbytes


def _verify(file: ServerFile, runs: list[CopiedRun], expected: str) -> None:
    """Compare; gaps are zeros in nearly all files, so they are fetched only if zeros differ."""
    if expected not in (_digest(file, runs, is_zero=True), _digest(file, runs, is_zero=False)):
        raise RemoteError(
            f"{file.path}: the downloaded bytes do not have the SHA-256 that the server states, "
            f"{expected}",
            remedy="Copy it again; if it stays so, the file on the server is damaged",
        )


def _digest(file: ServerFile, runs: list[CopiedRun], *, is_zero: bool) -> str:
    sha256 = hashlib.sha256()
    offset = 0
    for run in runs:
        sha256.update(_gap(file, offset, run.start, is_zero=is_zero))
        skipped = max(offset - run.start, 0)  # tensors may overlap
        for part in range(skipped, run.nbytes, READ_BYTES):
            check_cancelled()
            count = min(READ_BYTES, run.nbytes - part)
            sha256.update(read_at(run.descriptor, count, run.offset + part))
        offset = max(offset, run.start + run.nbytes)
    sha256.update(_gap(file, offset, file.nbytes, is_zero=is_zero))
    return sha256.hexdigest()


def _gap(file: ServerFile, start: int, stop: int, *, is_zero: bool) -> bytes:
    """Return the bytes between two tensors, or before the first."""
    if start >= stop:
        return b""
    if stop <= len(file.data):
        return file.data[start:stop]
    return bytes(stop - start) if is_zero and start else file.read(start, stop - start).tobytes()
