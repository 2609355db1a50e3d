"""Save the elements of a tensor as a NumPy file or as text, tile by tile."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np

from ggufkit.errors import OutputError
from ggufkit.models.byte_ranges import Tally, little_endian_bytes
from ggufkit.models.model import Tensor
from ggufkit.models.rows import rows_and_width
from ggufkit.models.sources import separable
from ggufkit.models.tensors.tensor import require_decodable
from ggufkit.quants import codec
from ggufkit.quants.parallel import Numbers
from ggufkit.system.cancellation import check_cancelled
from ggufkit.system.descriptors import AnyPath, as_path, write_at
from ggufkit.system.readers_limit import NO_LIMIT, ReadersLimit
from ggufkit.system.staging import Staging, staged
from ggufkit.system.threads import Progress

TILE_ELEMENTS: Final = 1 << 18  # a multiple of every type's block


def save_array(
    tensor: Tensor, path: AnyPath, *, clobber: bool = True, progress: Progress | None = None
) -> Path:
    """Save a tensor's elements to `path`, a .npy or .csv file, and return the path.

    Memory is bounded, and the file appears whole or not at all. Plain types keep their dtype; all
    others become float32. A .csv file has a line for each row of the last axis, and each number
    with as many digits as its type needs. `progress(done, total)` counts bytes of the tensor.

    Raises OutputError for another ending, for the tensor's own file and, without `clobber`, for a
    file that exists; TensorTypeError for an opaque type.
    """
    target = as_path(path)
    span = tensor.source.span
    if span and span.file.same_file(target):
        raise OutputError(f"{target} is also an input", remedy="Write to another name")
    write = _WRITERS.get(target.suffix.lower())
    if write is None:
        raise OutputError(f"{target} does not end in .npy or .csv", remedy="Use .npy or .csv")
    require_decodable(tensor)
    tensor = separable(tensor)
    limit = ReadersLimit.of([span.file.status]) if span else NO_LIMIT

    def fill(stage: Staging) -> None:
        offset = 0
        for data in write(tensor, _elements(tensor, progress)):
            check_cancelled()
            write_at(stage.descriptor, data, offset)
            offset += len(data)

    staged(target, fill, limit=limit, clobber=clobber)
    return target


def _elements(tensor: Tensor, progress: Progress | None) -> Iterator[Numbers]:
    """Yield the elements in order, in flat arrays."""
    kind, tally = tensor.type, Tally(progress)
    tally.expect(tensor.nbytes)
    for start in range(0, tensor.elements, TILE_ELEMENTS):
        stop = min(start + TILE_ELEMENTS, tensor.elements)
        data = little_endian_bytes(tensor, kind.row_bytes(start), kind.row_bytes(stop))
        if kind.dtype:
            yield np.ascontiguousarray(data).view(f"<{kind.dtype}")
        else:
            yield codec.dequantize(data, kind)
        tally.add(data.size)


def _npy(tensor: Tensor, tiles: Iterator[Numbers]) -> Iterator[bytes]:
    head = io.BytesIO()
    description = {
        "descr": np.lib.format.dtype_to_descr(tensor.dtype.newbyteorder("<")),
        "fortran_order": False,
        "shape": tensor.shape,
    }
    np.lib.format.write_array_header_1_0(head, description)
    yield head.getvalue()
    for tile in tiles:
        yield tile.tobytes()


def _csv(tensor: Tensor, tiles: Iterator[Numbers]) -> Iterator[bytes]:
    width = rows_and_width(tensor.shape)[1]
    column = 0
    for tile in tiles:
        texts: list[str] = []
        offset = 0
        while offset < len(tile):
            piece = tile[offset : offset + width - column]
            offset, column = offset + len(piece), (column + len(piece)) % width
            texts += (",".join(piece.astype(str)), "," if column else "\n")
        yield "".join(texts).encode()


_WRITERS: Final[dict[str, Callable[[Tensor, Iterator[Numbers]], Iterator[bytes]]]] = {
    ".npy": _npy,
    ".csv": _csv,
}
