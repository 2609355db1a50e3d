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
from ggufkit.remote.range_file import RangeFile
from ggufkit.system.cancellation import check_cancelled
from ggufkit.system.descriptors import read_at
from ggufkit.system.threads import in_parallel

READ_BYTES: Final = 1 << 20
MOST_GAPS: Final = 1 << 20  # bytes between tensors; if more are missing, tensors were left out


class CopiedRun(NamedTuple):
    """Bytes of a remote file from `start` on, and where they were written."""

    start: int
    nbytes: int
    descriptor: int
    offset: int


def verify_copies(written: Iterable[tuple[PlannedFile, int]], threads: int) -> None:
    """Raise RemoteError if a file that was copied whole has another digest than its server states.

    `written` are files that are not renamed yet: their plans, and their descriptors. Files whose
    tensors were copied in part, and files without a known SHA-256, are not checked.
    """
    checked = []
    runs_of: dict[RangeFile, list[CopiedRun]] = {}
    for planned, descriptor in written:
        for extent in planned.extents:
            span = extent.source.span
            if span and isinstance(span.file, RangeFile):
                run = CopiedRun(span.offset, span.nbytes, descriptor, extent.offset)
                runs_of.setdefault(span.file, []).append(run)
    for file, copied in runs_of.items():
        runs = sorted(set(copied))
        gaps = (stop - start for start, stop in _gaps(file, runs) if start >= runs[0].start)
        if file.sha256 and sum(gaps) <= MOST_GAPS:
            checked.append(functools.partial(_verify, file, runs))
    in_parallel(checked, threads)


def _gaps(file: RangeFile, runs: list[CopiedRun]) -> Iterator[tuple[int, int]]:
    """Yield begin and end of the bytes that were not copied."""
    offset = 0
    for run in runs:
        if run.start > offset:
            yield offset, run.start
        offset = max(offset, run.start + run.nbytes)
    if file.nbytes > offset:
        yield offset, file.nbytes


def _verify(file: RangeFile, runs: list[CopiedRun]) -> None:
    """Compare; gaps are zeros in nearly all files, so they are fetched only if zeros differ."""
    if file.sha256 not in (_digest(file, runs, is_zero=True), _digest(file, runs, is_zero=False)):
        raise RemoteError(
            f"{file.path}: the downloaded bytes do not have the SHA-256 that the server states, "
            f"{file.sha256}",
            remedy="Copy it again; if it stays so, the file on the server is damaged",
        )


def _digest(file: RangeFile, runs: list[CopiedRun], *, is_zero: bool) -> str:
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


def _gap(file: RangeFile, start: int, stop: int, *, is_zero: bool) -> bytes:
    """Return the bytes between two tensors, or before the first."""
    if start >= stop:
        return b""
    if stop <= len(file.data):
        return file.data[start:stop]
    return bytes(stop - start) if is_zero and start else file.read(start, stop - start).tobytes()
