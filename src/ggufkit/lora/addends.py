"""Rows of a tensor with the changes of adapters added, in float32."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from ggufkit.lora.pairs import Pair
from ggufkit.models.byte_ranges import decoded_rows
from ggufkit.models.model import Tensor
from ggufkit.models.rows import Made
from ggufkit.quants.parallel import Floats
from ggufkit.system.mapped_file import Bytes

TILE_ROWS: Final = 128  # multiplied together: the same numbers whatever rows are asked for


class Addend(NamedTuple):
    """One addend of a tensor: scale * b @ a, or scale times plain numbers.

    It is added from element `first` of the tensor on, whatever the tensor's shape is.
    """

    change: Pair | Tensor
    scale: float
    first: int = 0


@dataclass(frozen=True, eq=False)
class Merged(Made):
    """Rows of a tensor in float32 with the changes of adapters added."""

    tensor: Tensor
    addends: tuple[Addend, ...]

    def read(self, start: int, stop: int) -> Bytes:
        """Decode rows `start` to `stop`, and add each addend in the order of the adapters."""
        rows: Floats = decoded_rows(self.tensor, start, stop).copy()
        flat, width = rows.reshape(-1), rows.shape[-1]
        for addend in self.addends:
            begin = start * width - addend.first  # of these rows, in elements of the addend
            for element, added in _added(addend, begin, begin + flat.size):
                low, high = max(begin, element), min(begin + flat.size, element + added.size)
                flat[low - begin : high - begin] += added[low - element : high - element]
        return rows.view(np.uint8)


def _added(addend: Addend, begin: int, end: int) -> Iterator[tuple[int, Floats]]:
    """Yield all elements from `begin` to `end` of an addend, and perhaps others around them.

    They come in tiles of one matrix each, with the number of their first element.
    """
    change, scale, _ = addend
    columns = change.shape[-1] if change.shape else 1
    rows = math.prod(change.shape[:-1])
    if not rows * columns:
        return
    low, high = max(begin // columns, 0), min(-(-end // columns), rows)
    if isinstance(change, Tensor):
        if low < high:
            numbers = decoded_rows(change, low, high)
            yield low * columns, np.float32(scale) * numbers.reshape(-1)
        return
    height = change.shape[-2]
    for matrix in range(low // height, -(-high // height)):
        top = matrix * height
        a = decoded_rows(change.a, matrix * change.rank, (matrix + 1) * change.rank)
        first, last = max(low - top, 0), min(high - top, height)
        for tile in range(first // TILE_ROWS * TILE_ROWS, last, TILE_ROWS):
            b = decoded_rows(change.b, top + tile, top + min(tile + TILE_ROWS, height))
            yield (top + tile) * columns, (np.float32(scale) * (b @ a)).reshape(-1)
