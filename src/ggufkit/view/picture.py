"""Pictures of a tensor's values: tiles of a pyramid, from the whole matrix down to single numbers.

A tensor is seen as a matrix: rows of the last axis, all other axes together. On level k, one pixel
is one stored value out of each 2^k by 2^k: the one in the middle. An axis is thinned out no more
than is needed to fit it into one tile. Values are never averaged, because means of weights are all
near zero. Only the blocks that hold these values are decoded.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ggufkit.format.byte_order import to_byte_order
from ggufkit.models.model import Tensor
from ggufkit.models.rows import rows_and_width
from ggufkit.models.sources import separable
from ggufkit.models.tensors.tensor import require_decodable
from ggufkit.quants import codec
from ggufkit.quants.parallel import Floats
from ggufkit.remote.range_file import ByteRange, RangeFile
from ggufkit.system.cpu import worker_count
from ggufkit.system.mapped_file import Bytes
from ggufkit.view.plain_values import number as json_number

TILE: Final = 512  # pixels of a side
MAX_BLOCK_ELEMENTS: Final = 1 << 15  # decoded of one row for a tile
FEW_ROWS: Final = 32  # read for a tile where each row is a request, or is computed
STRIP: Final = 32  # rows decoded at once, so that they stay in the caches

PixelPlaces = npt.NDArray[np.int64]
# Decoding takes all cores and memory for each tile: more at the same time would not be faster.
_decoding: Final = threading.BoundedSemaphore(worker_count(None) + 1)


@dataclass(frozen=True)
class TilePlace:
    """Which tile: its level, and its row and column among the tiles of that level."""

    level: int
    row: int
    column: int


@dataclass(frozen=True)
class Tile:
    """The value of each pixel, and the rows and columns where these values are stored."""

    rows: PixelPlaces
    columns: PixelPlaces
    values: Floats


def tile(tensor: Tensor, place: TilePlace) -> Tile:
    """Return a tile, at most TILE by TILE values; empty outside the matrix.

    Raises TensorTypeError for a type that cannot be decoded.
    """
    rows, columns = _tile_places(place, tensor)
    with _decoding:
        return Tile(rows, columns, values_at(tensor, rows, columns))


def difference_tile(before: Tensor, after: Tensor, place: TilePlace) -> Tile:
    """Return a tile of the second tensor minus the first, both read in the same places."""
    rows, columns = _tile_places(place, before, after)
    with _decoding:
        values = values_at(after, rows, columns) - values_at(before, rows, columns)
    return Tile(rows, columns, values)


def _tile_places(place: TilePlace, *tensors: Tensor) -> tuple[PixelPlaces, PixelPlaces]:
    """Return the rows and columns that a tile shows of tensors of one shape."""
    for tensor in tensors:
        require_decodable(tensor)
    row_count, width = rows_and_width(tensors[0].shape)
    rows = places(row_count, place.level, place.row)
    if any(_is_slow(tensor) for tensor in tensors):
        rows = _shared(rows, FEW_ROWS)
    block_size = max(tensor.type.block_size for tensor in tensors)
    return rows, _distinct_columns(block_size, places(width, place.level, place.column))


def places(count: int, level: int, tile: int) -> PixelPlaces:
    """Return which of `count` rows or columns a tile shows, one for each of its pixels."""
    step = 1 << min(max(level, 0), _fitting_level(count))
    start = min(max(tile, 0), count) * TILE * step
    starts = np.arange(start, min(start + TILE * step, count), step, dtype=np.int64)
    return np.minimum(starts + step // 2, count - 1)


def picture_facts(tensor: Tensor) -> dict[str, Any]:
    """Return the size of the matrix, the levels of the pyramid, and a range for the colours."""
    rows, width = rows_and_width(tensor.shape)
    fitting = {"row_level": _fitting_level(rows), "column_level": _fitting_level(width)}
    facts = {"rows": rows, "columns": width, "levels": max(fitting.values()) + 1, "tile": TILE}
    return facts | fitting | {"is_sampled_by_rows": _is_slow(tensor)}


def _fitting_level(count: int) -> int:
    """Return the level on which `count` rows or columns fit into one tile."""
    return max(-(-count // TILE) - 1, 0).bit_length()


def sample_statistics(tensor: Tensor) -> dict[str, Any]:
    """Return statistics of a sample: the values of the tile that shows the whole matrix."""
    top = picture_facts(tensor)["levels"] - 1
    values = tile(tensor, TilePlace(top, 0, 0)).values
    finite = values[np.isfinite(values)].astype(np.float64)
    if not finite.size:
        return {"count": 0}
    return {
        "count": int(finite.size),
        "deviation": json_number(finite.std()),
        "largest": json_number(np.abs(finite).max()),
        "zeros": json_number(np.count_nonzero(finite == 0) / finite.size),
        "mean": json_number(finite.mean()),
        "range": json_number(np.quantile(np.abs(finite), 0.999)),
    }


# Which values: few rows where each costs much, few blocks where a row has very many.


def _is_slow(tensor: Tensor) -> bool:
    span = tensor.source.span
    return span is None or isinstance(span.file, RangeFile)


def _distinct_columns(size: int, columns: PixelPlaces) -> PixelPlaces:
    """Return the columns to show: pixels share a block where all blocks would be too many."""
    most = max(MAX_BLOCK_ELEMENTS // size, 1)
    blocks = np.unique(columns // size)
    if len(blocks) <= most:
        return columns
    return _shared(columns // size, most) * size + columns % size


def _shared(numbers: PixelPlaces, most: int) -> PixelPlaces:
    """Return the numbers with at most about `most` distinct ones: the first of each run."""
    if not len(numbers):
        return numbers
    run = -(-len(numbers) // most)
    return numbers[np.arange(len(numbers)) // run * run]


def values_at(tensor: Tensor, rows: PixelPlaces, columns: PixelPlaces) -> Floats:
    """Return the elements in `rows` and `columns` as float32; only their blocks are decoded."""
    if not rows.size or not columns.size:
        return np.empty((rows.size, columns.size), np.float32)
    tensor = separable(tensor)
    kind = tensor.type
    unique_rows, row_at = np.unique(rows, return_inverse=True)
    blocks, block_at = np.unique(columns // kind.block_size, return_inverse=True)
    inside = block_at * kind.block_size + columns % kind.block_size
    packed = _blocks_of(tensor, unique_rows, blocks)
    values = np.empty((len(unique_rows), len(columns)), np.float32)
    for start in range(0, len(unique_rows), STRIP):
        part = np.ascontiguousarray(packed[start : start + STRIP])
        values[start : start + STRIP] = _decoded(tensor, part)[:, inside]
    return values if len(values) == len(rows) else values[row_at]


def _decoded(tensor: Tensor, packed: Bytes) -> Floats:
    kind = tensor.type
    native = to_byte_order(packed, kind, tensor.source.byte_order, "little")
    if kind.dtype:
        stored = np.ascontiguousarray(native).view(f"<{kind.dtype}")
        with np.errstate(over="ignore"):  # a double beyond float32 is infinite
            return stored.astype(np.float32)
    return codec.dequantize(native, kind, threads=1).astype(np.float32, copy=False)


def _blocks_of(tensor: Tensor, rows: PixelPlaces, blocks: PixelPlaces) -> Bytes:
    """Return the packed blocks of each row, shape (rows, bytes)."""
    size = tensor.type.block_bytes
    span = tensor.source.span
    if span is None:
        data = [tensor.source.read(int(row), int(row) + 1) for row in rows]
        return _picked(np.concatenate(data), blocks, size)
    if isinstance(span.file, RangeFile):
        first, last = int(blocks[0]), int(blocks[-1]) + 1
        begin = span.offset + first * size  # beyond int64 in forged files
        starts = [begin + row * tensor.row_bytes for row in rows.tolist()]
        ranges = [ByteRange(start, (last - first) * size) for start in starts]
        return _picked(np.stack(span.file.read_many(ranges)), blocks - first, size)
    whole = span.file.view(span.offset, span.nbytes).reshape(-1, tensor.row_bytes)
    blocks_of_rows = _picked_of(whole, rows, blocks, size)
    span.file.read(span.offset, 0)  # raises if the file was cut or changed meanwhile
    return blocks_of_rows


def _picked(rows: Bytes, blocks: PixelPlaces, size: int) -> Bytes:
    return _picked_of(rows, np.arange(len(rows)), blocks, size)


def _picked_of(whole: Bytes, rows: PixelPlaces, blocks: PixelPlaces, size: int) -> Bytes:
    first, last = int(blocks[0]), int(blocks[-1]) + 1
    if last - first == len(blocks):  # neighbours
        return whole[rows, first * size : last * size]
    grid = whole.reshape(len(whole), -1, size)
    return grid[rows[:, np.newaxis], blocks[np.newaxis, :]].reshape(len(rows), -1)
