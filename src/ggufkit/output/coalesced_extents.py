"""Join tensors that lie next to each other on a server, so that few requests get them all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ggufkit.models.sources import FileSource
from ggufkit.output.layout import Extent
from ggufkit.remote.server_file import ServerFile


def coalesced_extents(extents: Iterable[Extent]) -> Iterator[Extent]:
    """Yield extents in order; those adjacent in input and output become one, if they are copied."""
    last: Extent | None = None
    for extent in extents:
        union = _union(last, extent) if last else None
        if last and not union:
            yield last
        last = union or extent
    if last:
        yield last


def _union(first: Extent, second: Extent) -> Extent | None:
    """Return two extents as one, None if they are not adjacent in a file on a server."""
    before, after = _server_span(first), _server_span(second)
    if before is None or after is None or before[0] is not after[0]:
        return None
    file, offset = before
    if offset + first.nbytes != after[1] or first.offset + first.nbytes != second.offset:
        return None
    nbytes = first.nbytes + second.nbytes
    source = FileSource(file, offset, nbytes, 1, first.source.byte_order)
    return Extent(first.offset, nbytes, first.name, nbytes, 1, source)


def _server_span(extent: Extent) -> tuple[ServerFile, int] | None:
    """Return the file on a server whose bytes are copied, and their offset."""
    span = extent.source.span
    if span is None or not isinstance(span.file, ServerFile):
        return None
    return span.file, span.offset
