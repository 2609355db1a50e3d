"""A tensor's packed bytes in order, tile by tile: little endian, in bounded memory.

Rows follow each other and consist of whole blocks, so a tensor can be cut between any two blocks,
however long its rows are.
"""

from __future__ import annotations

from collections.abc import Iterator

from ggufkit.format.byte_order import to_byte_order
from ggufkit.models.model import Tensor
from ggufkit.models.sources import in_order
from ggufkit.system.mapped_file import Bytes
from ggufkit.system.threads import Progress


def tiles(tensor: Tensor, nbytes: int) -> Iterator[tuple[int, int]]:
    """Yield begin and end of tiles of about `nbytes` bytes, in order, each of whole blocks."""
    block = max(tensor.type.block_bytes, 1)
    step = max(nbytes // block, 1) * block
    for start in range(0, tensor.nbytes, step):
        yield start, min(start + step, tensor.nbytes)


def packed(tensor: Tensor, start: int, stop: int) -> Bytes:
    """Return the packed bytes from `start` to `stop`, between blocks, as little endian has them.

    Bytes of an opaque type, whose fields are unknown, are not swapped.
    """
    span = tensor.source.span
    if span:
        data = span.file.read(span.offset + start, stop - start)
        return to_byte_order(data, tensor.type, tensor.source.byte_order, "little")
    first = start // tensor.row_bytes
    last = -(-stop // tensor.row_bytes)
    rows = in_order(tensor, "little").read(first, last).reshape(-1)
    begin = first * tensor.row_bytes
    return rows[start - begin : stop - begin]


class Tally:
    """Counts bytes done and expected, and reports them to a callback."""

    def __init__(self, progress: Progress | None) -> None:
        """Begin with nothing done and nothing expected."""
        self._done, self._total, self._progress = 0, 0, progress

    def expect(self, nbytes: int) -> None:
        """Expect more bytes."""
        self._total += nbytes

    def add(self, nbytes: int) -> None:
        """Count bytes that are done."""
        self._done += nbytes
        if self._progress:
            self._progress(self._done, self._total)
