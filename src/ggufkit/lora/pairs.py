"""The factors of an adapter: a `Pair` for each matrix, names in a GGUF file, and merged rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from ggufkit.checks.model_view import EMBEDDING
from ggufkit.checks.other_models import LORA_A, LORA_B
from ggufkit.conversion.map_tensors import Moves
from ggufkit.conversion.tensors.moves import concat, renamed, reshape, stack, transpose
from ggufkit.conversion.tensors.operations import OPERATIONS, perform
from ggufkit.errors import AdapterError
from ggufkit.models.byte_ranges import decoded_rows
from ggufkit.models.model import Tensor
from ggufkit.models.rows import ComputedRows
from ggufkit.quants.parallel import Floats
from ggufkit.system.mapped_file import Bytes

ALPHA: Final = "adapter.lora.alpha"
TILE_ROWS: Final = 128  # multiplied together: numbers do not depend on the rows that are read


@dataclass(frozen=True)
class Pair:
    """The factors of the change of one matrix, or of a stack of matrices: the change is b @ a.

    `a` has the shape (..., rank, columns), and `b` (..., rows, rank).
    """

    name: str
    a: Tensor
    b: Tensor

    @property
    def rank(self) -> int:
        """The common axis of both factors."""
        return self.b.shape[-1]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the matrix."""
        return (*self.b.shape[:-1], self.a.shape[-1])

    @property
    def elements(self) -> int:
        """The number of elements of both factors."""
        return self.a.elements + self.b.elements


def checked(name: str, a: Tensor, b: Tensor) -> Pair:
    """Return a pair; AdapterError if the shapes of its factors do not fit."""
    fits = len(a.shape) == len(b.shape) >= 2 and a.shape[-2] == b.shape[-1] > 0  # noqa: PLR2004
    if not fits or a.shape[:-2] != b.shape[:-2]:
        raise AdapterError(
            f"{name}: factors of shape {list(a.shape)} and {list(b.shape)} have no common rank"
        )
    return Pair(name, a, b)


def _perform(item: Tensor | Pair, name: str, arguments: list[float]) -> Tensor | Pair:
    """Do an operation on a matrix by changing its factors; AdapterError if that is impossible."""
    if isinstance(item, Tensor):
        return perform(item, name, arguments)
    operation = OPERATIONS[name]
    if name == "transpose":
        return Pair(item.name, transpose(item.b), transpose(item.a))
    if name == "regroup_columns":  # of A
        return Pair(item.name, perform(item.a, name, arguments), item.b)
    if not operation.keeps_columns:
        raise AdapterError(f"{item.name}: {name} cannot be done on the factors of a matrix")
    b = perform(item.b, name, arguments)
    if not b.shape or b.shape[-1] != item.rank:
        raise AdapterError(f"{item.name}: {name} does not keep the columns of the matrix")
    a, leading = item.a, b.shape[:-2]
    if len(a.shape) != len(b.shape):  # one factor for each matrix of a stack
        a = reshape(stack(a.name, [a] * math.prod(leading)), (*leading, *a.shape[-2:]))
    return Pair(item.name, a, b)


def _stack(name: str, items: list[Tensor | Pair]) -> Tensor | Pair:
    pairs = [item for item in items if isinstance(item, Pair)]
    if len(pairs) < len(items):
        return stack(name, [item for item in items if isinstance(item, Tensor)])
    a, b = (stack(name, list(parts)) for parts in zip(*((p.a, p.b) for p in pairs), strict=True))
    return Pair(name, a, b)


def _concat(name: str, items: list[Tensor | Pair]) -> Tensor | Pair:
    """Join matrices along their rows: they need one common `a`."""
    pairs = [item for item in items if isinstance(item, Pair)]
    if len(pairs) < len(items):
        return concat(name, [item for item in items if isinstance(item, Tensor)])
    first = pairs[0].a
    if any(not _is_equal(first, pair.a) for pair in pairs[1:]):
        raise AdapterError(
            f"{name} joins matrices whose adapters differ in their factor A",
            remedy="Merge the adapter into its model in transformers, and convert the result",
        )
    return Pair(name, first, concat(name, [pair.b for pair in pairs]))


# What `map_items` does with the tensors of a checkpoint, for pairs among them.
PAIR_MOVES: Final[Moves[Tensor | Pair]] = Moves(
    _perform, _stack, _concat, lambda item, name: replace(item, name=name)
)


def _is_equal(first: Tensor, other: Tensor) -> bool:
    same = first.shape == other.shape and first.type == other.type
    return same and bytes(first.raw()) == bytes(other.raw())


def as_tensors(item: Tensor | Pair) -> Iterator[Tensor]:
    """Yield the tensors of a pair, named and laid out as llama.cpp reads them."""
    if isinstance(item, Tensor):
        yield item
        return
    a, b = (item.b, transpose(item.a)) if item.name == EMBEDDING else (item.a, item.b)
    yield renamed(a, item.name + LORA_A)
    yield renamed(b, item.name + LORA_B)


class Addend(NamedTuple):
    """One addend of a tensor: scale * b @ a, or scale times plain numbers.

    It is added from element `first` of the tensor on, whatever the tensor's shape is.
    """

    change: Pair | Tensor
    scale: float
    first: int = 0


@dataclass(frozen=True, eq=False)
class Merged(ComputedRows):
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
    """Yield at least the elements from `begin` to `end` of an addend.

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
