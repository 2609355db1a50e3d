"""Open all models of a repository on the Hub for their headers, with few requests and bytes.

The quants of a repository share their vocabulary, which is nearly all of a header. One header is
fetched whole. Of the others, the vocabulary's beginning is fetched, and everything after its end.
If both are as in the first header, its middle is used; then the last tensor must end where the file
ends. So sizes, types and keys are each file's own, but a vocabulary that differs only in its middle
is not noticed. A caller that needs every byte opens one model.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import ggufkit._native as _native
from ggufkit.format.header import Header, parse
from ggufkit.models.hub.find import sets_of
from ggufkit.models.hub.repository import CachedModel
from ggufkit.models.model import Model
from ggufkit.models.open import PARALLEL_HEADERS, open_files, parse_ranges
from ggufkit.models.range_header import read_header
from ggufkit.remote.hub.hub import HubFile
from ggufkit.remote.range_file import ByteRange, RangeFile
from ggufkit.rules.findings import first_error
from ggufkit.system.threads import in_parallel, in_turn, pool_of

SAME_BYTES: Final = 1 << 12  # compared at both ends of the shared middle
LONG_BYTES: Final = 1 << 14  # values beyond this are worth sharing
SPARE_BYTES: Final = 1 << 15  # fetched after the expected end of a header


@contextlib.contextmanager
def open_all(name: str) -> Iterator[list[tuple[CachedModel, Model]]]:
    """Provide all models of the repository `name` with their names; they are closed afterwards.

    Errors are as in `open`.
    """
    named_sets = sets_of(name)
    with contextlib.ExitStack() as opened:
        _warm([files[0] for _, files in named_sets])
        tasks = [functools.partial(open_files, files) for _, files in named_sets]
        models: list[Model] = []
        with pool_of(min(PARALLEL_HEADERS, max(len(tasks), 1))) as pool:
            models.extend(opened.enter_context(model) for model in in_turn(pool, tasks, len(tasks)))
        yield [(cached, model) for (cached, _), model in zip(named_sets, models, strict=True)]


def _warm(files: Sequence[RangeFile | Path]) -> None:
    """Fetch the headers of files, of the first one whole."""
    unread = [file for file in files if isinstance(file, HubFile)]
    if not unread:
        return
    first, *others = unread
    header = parse_ranges(first).header
    tasks = [functools.partial(read_alike, file, first, header) for file in others]
    in_parallel(tasks, PARALLEL_HEADERS)


def read_alike(file: HubFile, model: RangeFile, header: Header) -> None:
    """Read the header of `file` with the help of the `header` of another that is like it."""
    file.expect_short_header()
    file.load(1)
    if not _shares_middle(file, model.data, header):
        read_header(file)


def _shares_middle(file: HubFile, first_head: bytes, header: Header) -> bool:
    """Complete the header of `file` by the middle of the first; False if their ends differ."""
    head = file.data
    if _native.lack(head, file.nbytes) is None:
        return True
    long = (e.end for e in header.entries.values() if e.end - e.value_at > LONG_BYTES)
    end = max(long, default=0)  # of the middle, in the first header
    place = first_head.find(head[-SAME_BYTES:]) + SAME_BYTES  # where it continues as the file does
    shift = place - len(head)
    start = end - SAME_BYTES - shift
    stop = min(header.end + SPARE_BYTES - shift, file.nbytes)
    if place < SAME_BYTES or end - SAME_BYTES < place or stop < start + SAME_BYTES:
        return False
    (tail,) = file.fetch([ByteRange(start, stop - start)])
    whole = b"".join((head, first_head[place : end - SAME_BYTES], tail))
    is_same = tail[:SAME_BYTES] == first_head[end - SAME_BYTES : end]
    if not (is_same and _is_sound(whole, file.nbytes)):
        return False
    file.set_beginning(whole)
    return True


def _is_sound(data: bytes, nbytes: int) -> bool:
    """Whether a header made of two parts fits a file: whole, right, and its tensors end there."""
    if _native.lack(data, nbytes) is not None:
        return False
    header = parse(data, nbytes)
    is_right = header.end <= len(data) and first_error(header.findings) is None
    return is_right and 0 <= nbytes - header.data_end < header.alignment
