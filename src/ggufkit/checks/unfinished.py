"""Find the end of an unfinished download: from there on, a file has only zeros.

Download tools reserve the whole file and fill it from the front, so its size is already right. Only
the end of a file is read, unless it is zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

import ggufkit._native as _native
from ggufkit.format.tensor_infos import Places
from ggufkit.models.open import ParsedFile
from ggufkit.rules.findings import Finding, finding
from ggufkit.system.mapped_file import Data

LEAST: Final = 1 << 20  # bytes of zeros; a model may end in a few on purpose
STEP: Final = 1 << 20  # bytes read together
MATRICES: Final = 2  # zero to their ends; an untrained adapter ends in one
END_OF_ROW: Final = 64  # bytes; rows of zeros pad a vocabulary, and the row before may end in zeros


def unfinished(part: ParsedFile) -> Iterator[Finding]:
    """Yield a finding at the first byte that was never written, if the data ends in such bytes."""
    header = part.header
    begin, end = header.data_offset, header.data_end
    if end - begin < LEAST or not _native.all_zero(part.file.data, end - LEAST, end):
        return
    offset = max(_end_of_data(part.file.data, begin, end), begin)
    missing = _missing(header.places, offset - begin)
    if missing:
        numbers = {
            "at": offset,
            "count": end - offset,
            "percent": 100 * (end - offset) // max(end - begin, 1),
        }
        cut = finding("unfinished", offset, tensors=missing, **numbers)
        yield cut.at(str(part.file.path))


def _end_of_data(data: Data, begin: int, end: int) -> int:
    """Return the offset from which all bytes up to `end` are zero."""
    for stop in range(end, begin, -STEP):
        start = max(stop - STEP, begin)
        if not _native.all_zero(data, start, stop):
            content = np.frombuffer(data, np.uint8, stop - start, start)
            return start + int(np.flatnonzero(content)[-1]) + 1
    return begin


def _missing(places: Places, offset: int) -> int:
    """Return the number of tensors that end in unwritten zeros; 0 if they may be intended."""
    matrices = whole = 0
    is_cut = False
    for index, (start, stop) in enumerate(zip(places.starts, places.stops, strict=True)):
        if start >= offset and stop > start:
            whole += 1
            matrices += len(places.infos.shapes[index]) > 1
        elif start < offset < stop:
            rest = -(offset - start) % max(places.row_bytes[index], 1)
            is_cut = rest > END_OF_ROW
    return whole + is_cut if is_cut or matrices >= MATRICES else 0
