"""Read all tensor data and report NaN, infinities, broken blocks and tensors of zeros.

Threads check a few tiles at a time, so that memory is bounded for any model.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

import ggufkit._native as _native
from ggufkit.checks.model_view import Violation, at_tensor
from ggufkit.format.header import Header
from ggufkit.format.tensor_infos import Places
from ggufkit.format.types import TensorType
from ggufkit.models.byte_ranges import Tally, byte_ranges, little_endian_bytes, reading_threads
from ggufkit.models.model import Model, Tensor
from ggufkit.models.sources import separable
from ggufkit.quants import codec, kernels
from ggufkit.rules.findings import Finding, finding
from ggufkit.system.disk_blocks import begin_of_hole
from ggufkit.system.mapped_file import Bytes, Data, MappedFile
from ggufkit.system.threads import Progress, in_turn, pool_of

TILE_BYTES: Final = 4 << 20  # large enough for reads, small enough for a cache
PROBE_BLOCKS: Final = 16  # elements decoded first: weights rarely begin with so many zeros
_FLOATS: Final = ("F16", "F32", "F64", "BF16")
_NORM: Final = "norm.weight"  # a factor: zeros would erase all activations
_BF16_EXPONENT: Final = 0x7F80


@dataclass(frozen=True)
class _TileContent:
    """The first bad element or block of each kind in a tile or tensor, else None."""

    nan: int | None = None
    infinity: int | None = None
    block: int | None = None
    is_zero: bool = True

    def joined(self, other: _TileContent, elements: int, blocks: int) -> _TileContent:
        """Return the content of this and a following tile, whose indices are shifted."""
        return _TileContent(
            _first(self.nan, other.nan, elements),
            _first(self.infinity, other.infinity, elements),
            _first(self.block, other.block, blocks),
            self.is_zero and other.is_zero,
        )


def audit(
    model: Model, *, threads: int | None = None, progress: Progress | None = None
) -> Iterator[Violation]:
    """Yield the faults in the data of a model's tensors, in their order.

    Opaque types are skipped. `progress(done, total)` counts bytes.
    """
    workers = reading_threads(model.inputs, threads)
    tally = Tally(progress)
    tensors = [
        t
        for t in map(separable, model.tensors.values())
        if t.nbytes and (t.type.dtype or kernels.has_kernel(t.type))
    ]
    tally.expect(sum(t.nbytes for t in tensors))
    with pool_of(workers) as pool:
        tasks = (
            functools.partial(_content_of_tile, tensor, start, stop)
            for tensor in tensors
            for start, stop in byte_ranges(tensor, TILE_BYTES)
        )
        ahead = in_turn(pool, tasks, 2 * workers)
        for t in tensors:
            content = _TileContent()
            for start, stop in byte_ranges(t, TILE_BYTES):
                blocks = start // t.type.block_bytes
                content = content.joined(next(ahead), blocks * t.type.block_size, blocks)
                tally.add(stop - start)
            yield from _faults(t, content)


def _content_of_tile(tensor: Tensor, start: int, stop: int) -> _TileContent:
    data, kind = little_endian_bytes(tensor, start, stop), tensor.type
    if kind.name in _FLOATS:
        return _content_of_floats(data, kind)
    if kind.dtype is not None:
        return _TileContent(is_zero=not data.any())
    return _TileContent(block=codec.validate(data, kind), is_zero=_is_zero(data, kind))


def _content_of_floats(data: Bytes, type: TensorType) -> _TileContent:
    if type.name == "BF16":
        bits = data.view("<u2")
        magnitude = bits & np.uint16(0x7FFF)
        nan, infinite = magnitude > _BF16_EXPONENT, magnitude == _BF16_EXPONENT
        return _TileContent(_index(nan), _index(infinite), is_zero=not magnitude.any())
    values = data.view(f"<{type.dtype}")
    is_zero = not values.any()
    if bool(np.isfinite(values).all()):
        return _TileContent(is_zero=is_zero)
    return _TileContent(_index(np.isnan(values)), _index(np.isinf(values)), is_zero=is_zero)


def _is_zero(data: Bytes, type: TensorType) -> bool:
    """Whether all blocks decode to zeros, whatever their bytes are."""
    probe = PROBE_BLOCKS * type.block_bytes
    if codec.dequantize(data[:probe], type, threads=1).any():
        return False
    return not codec.dequantize(data, type, threads=1).any()


def _index(wrong: np.ndarray[Any, np.dtype[np.bool_]]) -> int | None:
    return int(wrong.argmax()) if wrong.any() else None


def _first(before: int | None, here: int | None, offset: int) -> int | None:
    return before if here is None or before is not None else here + offset


def _faults(tensor: Tensor, content: _TileContent) -> Iterator[Violation]:
    if content.nan is not None:
        yield at_tensor("data-nan", tensor, index=content.nan)
    if content.infinity is not None:
        yield at_tensor("data-infinite", tensor, index=content.infinity)
    if content.block is not None:
        yield at_tensor("data-block", tensor, type=tensor.type.name, block=content.block)
    if content.is_zero and (tensor.rows > 1 or tensor.name.endswith(_NORM)):
        yield at_tensor("data-zero", tensor, shape=list(tensor.shape))
    elif content.is_zero:
        yield at_tensor("data-zero-vector", tensor)


LEAST_BYTES: Final = 1 << 20  # of zeros; a model may end in a few on purpose
STEP_BYTES: Final = 1 << 20  # read together
ZERO_MATRICES: Final = 2  # tensors of zeros at the end; an untrained adapter ends in one
ROW_END_BYTES: Final = 64  # rows of zeros pad a vocabulary, and the row before may end in zeros


def unfinished(file: MappedFile, header: Header) -> Iterator[Finding]:
    """Yield a finding at the first byte that was never written, if the data ends in such bytes."""
    begin, end = header.data_offset, header.data_end
    if end - begin < LEAST_BYTES or not _native.all_zero(file.data, end - LEAST_BYTES, end):
        return
    with file.borrowed() as descriptor:
        stop = begin_of_hole(descriptor, begin, end)
    offset = max(_end_of_data(file.data, begin, stop), begin)
    missing = _missing(header.places, offset - begin)
    if missing:
        numbers = {
            "at": offset,
            "count": end - offset,
            "percent": 100 * (end - offset) // max(end - begin, 1),
        }
        cut = finding("unfinished", offset, tensors=missing, **numbers)
        yield cut.at(file.path)


def _end_of_data(data: Data, begin: int, end: int) -> int:
    for stop in range(end, begin, -STEP_BYTES):
        start = max(stop - STEP_BYTES, begin)
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
            is_cut = rest > ROW_END_BYTES
    return whole + is_cut if is_cut or matrices >= ZERO_MATRICES else 0
