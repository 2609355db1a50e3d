"""Split the work of a plan into chunks: each writes its bytes at their final offsets.

A chunk is a value that describes its work completely, so it can run in any thread, process or
machine: its sources and its output open their files there. A chunk may run twice: it writes the
same bytes to the same place.
"""

from __future__ import annotations

import contextlib
import math
import pickle
import threading
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from ggufkit.models.rows import Source
from ggufkit.models.sources import FileSource, QuantizedSource, Swapped
from ggufkit.output.layout import Extent
from ggufkit.remote.range_file import RangeFile
from ggufkit.system.descriptors import begin_writeback, checksum_at, write_at
from ggufkit.system.mapped_file import Bytes
from ggufkit.system.staging import Output

TILE: Final = 1 << 16  # elements decoded and encoded at once: their floats stay in a core's cache
LANES: Final = 16  # at most: rows with a prefix are encoded in lanes, so many at once
PIECE: Final = 2 << 20  # bytes in memory at once, read or made, whichever is more


class Sizes(NamedTuple):
    """The bytes that a chunk copies or makes; if it reads more, the bytes that it reads."""

    copied: int
    encoded: int


HERE: Final = Sizes(copied=32 << 20, encoded=8 << 20)  # short: threads end together
AWAY: Final = Sizes(copied=256 << 20, encoded=64 << 20)  # long compared to a message


class Written(NamedTuple):
    """Bytes that are written: job number, file number, offset, count, checksum if requested."""

    job: int
    file: int
    offset: int
    nbytes: int
    checksum: int


@dataclass(frozen=True)
class PlacedExtent:
    """One extent and its output: a file of a job, by number."""

    job: int
    file: int
    output: Output
    extent: Extent

    @property
    def unit(self) -> int:
        """Bytes of one unit of a chunk: a row, or one byte if the extent is copied unchanged."""
        return self.extent.row_bytes if self.extent.source.span is None else 1

    @property
    def origin(self) -> QuantizedSource | None:
        """The source if its rows are decoded before they are packed."""
        source = self.extent.source
        return source if isinstance(source, QuantizedSource) and source.passes_floats else None


class Scratch(threading.local):
    """Memory that each thread reuses: fresh pages cost more time than the rows themselves."""

    def __init__(self) -> None:
        self._lent: dict[int, Bytes] = {}

    def lend(self, use: int, nbytes: int) -> Bytes:
        """Return `nbytes` bytes; the next call for the same `use` overwrites them."""
        if use not in self._lent or len(self._lent[use]) < nbytes:
            self._lent[use] = np.empty(nbytes, np.uint8)
        return self._lent[use][:nbytes]


_scratch: Final = Scratch()


@dataclass(frozen=True)
class Chunk:
    """Units `start` to `stop` of one extent, or of all extents made from the same tensor.

    `recorded` are the checksums of bytes that an earlier run recorded as written, if any.
    """

    parts: tuple[PlacedExtent, ...]
    start: int
    stop: int
    recorded: tuple[int | None, ...] = ()

    @property
    def unit(self) -> int:
        """Bytes of the largest unit, read or made."""
        origin = self.parts[0].origin
        row_bytes = origin.tensor.row_bytes if origin else 1
        return max(row_bytes, *(part.unit for part in self.parts))

    def place(self, part: PlacedExtent) -> tuple[int, int]:
        """Return the offset and count of a part's bytes in its file."""
        return part.extent.offset + self.start * part.unit, (self.stop - self.start) * part.unit

    def cut(self, nbytes: int) -> Iterator[Chunk]:
        """Cut into chunks of at most this many bytes, but at least one unit."""
        step = max(1, nbytes // self.unit)
        for start in range(self.start, self.stop, step):
            yield replace(self, start=start, stop=min(start + step, self.stop))

    def cut_into(self, sizes: Sizes) -> Iterator[Chunk]:
        """Cut into chunks of the copied or the made size."""
        is_copied = self.parts[0].extent.source.span is not None
        return self.cut(sizes.copied if is_copied else sizes.encoded)

    def contents(self, scratch: Scratch | None = None) -> list[Bytes]:
        """Return the bytes of each part, in the memory of `scratch` if there is one."""
        source, origin = self.parts[0].extent.source, self.parts[0].origin
        if origin is not None:
            return self._encode(origin, scratch or Scratch())
        if source.span is not None:
            span = source.span
            return [span.file.read(span.offset + self.start, self.stop - self.start)]
        return [np.ascontiguousarray(source.read(self.start, self.stop))]

    def _encode(self, origin: QuantizedSource, scratch: Scratch) -> list[Bytes]:
        """Read rows, and pack them for all parts."""
        rows = np.ascontiguousarray(origin.origin.read(self.start, self.stop))
        parts = [
            scratch.lend(index, len(rows) * part.unit).reshape(len(rows), part.unit)
            for index, part in enumerate(self.parts)
        ]
        for part, out in zip(self.parts, parts, strict=True):
            if part.origin:
                width = part.origin.tensor.shape[-1]
                height = max(LANES if part.origin.type.row_prefix else 1, TILE // width)
                tile = scratch.lend(-1, height * width * 4).view(np.float32)
                part.origin.requantize(rows, self.start, out, tile)
        return parts


def shortened(extent: Extent) -> Extent:
    """Return the extent with rows too wide for memory cut into several, if the source allows.

    Blocks are independent, unless columns have weights, when some types use the whole row, or rows
    have a prefix.
    """
    source = extent.source
    if extent.row_bytes <= PIECE or source.span is not None:
        return extent
    if isinstance(source, QuantizedSource) and source.weights is None:
        tensor = source.tensor
        if not isinstance(tensor.source, FileSource) or source.type.row_prefix:
            return extent
        block = math.lcm(tensor.type.block_size, source.type.block_size)
        width = _divisor(tensor.shape[-1], block)
        rows = tensor.source._replace(row_bytes=tensor.type.row_bytes(width))
        short = replace(tensor, shape=(tensor.elements // width, width), source=rows)
        return _with_rows(extent, replace(source, tensor=short), source.type.row_bytes(width))
    if isinstance(source, Swapped) and isinstance(source.inner, FileSource):
        unit = _divisor(extent.row_bytes, source.type.block_bytes)
        inner = source.inner._replace(row_bytes=unit)
        return _with_rows(extent, replace(source, inner=inner), unit)
    return extent


def _with_rows(extent: Extent, source: Source, row_bytes: int) -> Extent:
    return replace(extent, source=source, rows=extent.nbytes // row_bytes, row_bytes=row_bytes)


def _divisor(width: int, unit: int) -> int:
    """Return the largest of `unit` times a power of 2 that divides `width` and fits a tile."""
    while unit < TILE and width % (2 * unit) == 0:
        unit *= 2
    return unit


def grouped_by_tensor(parts: Iterable[PlacedExtent]) -> list[tuple[PlacedExtent, ...]]:
    """Group the parts that are made from the same tensor, so that it is read once."""
    groups: dict[object, list[PlacedExtent]] = {}
    for part in parts:
        groups.setdefault(_key(part), []).append(part)
    return [tuple(group) for group in groups.values() if group[0].extent.nbytes]


def _key(part: PlacedExtent) -> object:
    if part.origin is None:
        return id(part.extent)
    tensor = part.origin.tensor
    # A cut row has a separate source for each output, but these are equal.
    source = tensor.source if isinstance(tensor.source, FileSource) else id(tensor.source)
    return source, tensor.type, tensor.shape[-1:], tensor.rows


def whole(group: tuple[PlacedExtent, ...]) -> Chunk:
    """Return a whole group as one chunk."""
    return Chunk(group, 0, group[0].extent.nbytes // group[0].unit)


def run(chunk: Chunk, *, checked: bool = False) -> list[Written]:
    """Write the bytes of a chunk, except those whose recorded checksum still holds.

    With `checked` it returns the checksums of the bytes written.
    """
    sums = list(chunk.recorded or (None for _ in chunk.parts))
    with contextlib.ExitStack() as opened:
        targets = [opened.enter_context(part.output.opened()) for part in chunk.parts]
        missing = [
            index
            for index, (part, target) in enumerate(zip(chunk.parts, targets, strict=True))
            if sums[index] is None or checksum_at(target, *chunk.place(part)) != sums[index]
        ]
        todo = replace(chunk, parts=tuple(chunk.parts[index] for index in missing), recorded=())
        results = _write_once(todo, [targets[index] for index in missing], checked=checked)
    for index, checksum in zip(missing, results, strict=True):
        sums[index] = checksum
    return [
        Written(part.job, part.file, *chunk.place(part), checksum or 0)
        for part, checksum in zip(chunk.parts, sums, strict=True)
    ]


def run_pickled(chunk: bytes, *, checked: bool) -> list[Written]:
    """Run a chunk that another process sent.

    It is unpickled here so that a missing module fails the chunk, not its worker.
    """
    return run(pickle.loads(chunk), checked=checked)  # noqa: S301 (from whoever gives us work)


def _write_once(chunk: Chunk, targets: list[int], *, checked: bool) -> list[int]:
    """Write the bytes of a chunk to these descriptors, one per part; return checksums."""
    if not targets:
        return []
    span = chunk.parts[0].extent.source.span
    if span and (isinstance(span.file, RangeFile) or not checked):
        offset, nbytes = chunk.place(chunk.parts[0])
        span.file.copy(span.offset + chunk.start, nbytes, targets[0], offset)
        begin_writeback(targets[0], offset, nbytes)
        return [checksum_at(targets[0], offset, nbytes) if checked else 0]
    sums = [0] * len(targets)
    for piece in chunk.cut(PIECE):
        for index, data in enumerate(piece.contents(_scratch)):
            write_at(targets[index], data.reshape(-1).data, piece.place(piece.parts[index])[0])
            sums[index] = zlib.crc32(data.reshape(-1).data, sums[index]) if checked else 0
    for part, target in zip(chunk.parts, targets, strict=True):
        begin_writeback(target, *chunk.place(part))
    return sums


# Tensors that lie next to each other on a server come in one request.


def coalesced_extents(extents: Iterable[Extent]) -> Iterator[Extent]:
    """Yield extents in order; join copied ones that are adjacent in input and output."""
    last: Extent | None = None
    for extent in extents:
        union = _union(last, extent) if last else None
        if last and not union:
            yield last
        last = union or extent
    if last:
        yield last


def _union(first: Extent, second: Extent) -> Extent | None:
    """Return two extents as one, None if they are not adjacent in a file that is read by ranges."""
    before, after = first.source.span, second.source.span
    if not before or not after or before.file is not after.file:
        return None
    is_adjacent = (
        before.offset + first.nbytes == after.offset
        and first.offset + first.nbytes == second.offset
    )
    if not is_adjacent or not isinstance(before.file, RangeFile):
        return None
    nbytes = first.nbytes + second.nbytes
    source = FileSource(before.file, before.offset, nbytes, 1, first.source.byte_order)
    return Extent(first.offset, nbytes, first.name, nbytes, 1, source)
