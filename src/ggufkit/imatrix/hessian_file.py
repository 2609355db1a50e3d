"""Hessian files: second moments of the inputs of matrices, in GGUF.

`OWNER.moments` holds sums of products (F32, shape (parts, [matrices,] rows, columns), folded as
`folded_shape` says) and `OWNER.moment_counts` the numbers of tokens. The first part is to quantize
with, the second is held out. A banded file has only the blocks on the diagonal, of `hessian.band`
columns; in memory their shape is (width, band), with zeros where the last block is narrower.
`hessian.matrices` and `hessian.owners` list each matrix with the owner of its inputs, and
`NAME.first_row` holds the first row of its weights, which shows whether the Hessian is of another
model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from ggufkit.errors import ValueTypeError
from ggufkit.format.coerce import typed
from ggufkit.format.metadata import Metadata
from ggufkit.format.types import tensor_type
from ggufkit.imatrix.matrix import Counts
from ggufkit.inspection.digest import CONTENT, digest
from ggufkit.models.model import Model, Tensor, Tensors
from ggufkit.models.open import open as open_model
from ggufkit.models.rows import ComputedRows
from ggufkit.models.tensors.in_memory import as_tensor
from ggufkit.output.write import write
from ggufkit.quants.parallel import Floats, Numbers
from ggufkit.system.mapped_file import Bytes

HESSIAN_MEMORY: Final = 4 << 30  # bytes of sums that are in memory at once
MOMENTS: Final = ".moments"
MOMENT_COUNTS: Final = ".moment_counts"
FIRST_ROW: Final = ".first_row"
KIND: Final = "hessian"  # general.type
BAND: Final = "hessian.band"
BAND_UNIT: Final = 256  # columns: bands hold whole blocks of every type
MATRICES: Final = "hessian.matrices"
OWNERS: Final = "hessian.owners"


@dataclass(frozen=True)
class MomentsOrigin:
    """What moments were computed from."""

    model: Path
    content: bytes
    dataset: str
    chunk_size: int
    band: int | None = None

    def keys(self, tokens: int) -> dict[str, object]:
        """Return the keys of a file; reads the whole model for its digest."""
        with open_model(self.model) as model:
            model_digest = digest(model, CONTENT, tensors=False).model[CONTENT]
        keys: dict[str, object] = {
            "general.type": KIND,
            "hessian.model": model_digest,
            "hessian.text": hashlib.sha256(self.content).hexdigest(),
            "hessian.dataset": self.dataset,
            "hessian.chunk_size": typed("uint32", self.chunk_size),
            "hessian.token_count": typed("uint64", tokens),
        }
        return keys | ({BAND: typed("uint32", self.band)} if self.band else {})

    def first_rows(self, names: Iterable[str]) -> dict[str, Numbers]:
        """Return the first rows, by which a file is compared with a model."""
        with open_model(self.model) as model:
            tensors = (model.tensors[name] for name in names if name in model.tensors)
            return {tensor.name + FIRST_ROW: first_row(tensor) for tensor in tensors}


def require_band(band: int | None) -> None:
    """Raise ValueTypeError for a band that would cut blocks of a type."""
    if band is not None and (band <= 0 or band % BAND_UNIT):
        raise ValueTypeError(
            f"a band of {band} columns does not hold whole blocks of every type",
            remedy=f"Use a multiple of {BAND_UNIT}",
        )


def first_row(tensor: Tensor) -> Floats:
    """Return the first row of the first matrix of a tensor."""
    while len(tensor.shape) > 1:
        tensor = tensor[0]
    return np.asarray(tensor.numpy(), np.float32)


def save_hessian(
    target: Path, tensors: Iterable[Tensor], owners: Mapping[str, str], origin: MomentsOrigin
) -> None:
    """Write a file, whole or not at all, of the `tensors` that `moments_tensors` yields.

    `owners` has the owner of the inputs of each matrix.
    """
    moments = Tensors(sorted(tensors, key=lambda tensor: tensor.name.rpartition(".")[0]))
    counts = (tensor.numpy() for name, tensor in moments.items() if name.endswith(MOMENT_COUNTS))
    tokens = max(int(count.sum(axis=0).max()) for count in counts)
    names = sorted(owners)
    metadata = origin.keys(tokens) | {
        MATRICES: typed("array[string]", names),
        OWNERS: typed("array[string]", [owners[name] for name in names]),
    }
    rows = [as_tensor(name, row) for name, row in origin.first_rows(names).items()]
    write(Model(Metadata(metadata), Tensors([*moments.values(), *rows])), target)


def moments_tensors(name: str, sums: Floats, counts: Counts) -> tuple[Tensor, Tensor]:
    """Return the tensors of one owner; `sums` have the shape (parts, matrices, width, columns)."""
    parts, matrices, width, columns = sums.shape
    stack = (matrices,) if matrices > 1 else ()
    source = FoldedTriangles(sums.reshape(-1, width, columns))
    shape = (parts, *stack, *folded_shape(width, columns))
    moments = Tensor.over(name + MOMENTS, tensor_type("F32"), shape, source)
    return moments, as_tensor(name + MOMENT_COUNTS, counts)


def folded_shape(width: int, columns: int) -> tuple[int, int]:
    """Return the shape of the rectangles that hold one triangle of each block of a matrix.

    Row i of a rectangle is row i of the upper triangle, and then row N - 1 - i: N + 1 numbers
    together. The rectangles of all blocks follow each other.
    """
    return sum(-(-len(block) // 2) for block in _spans(width, columns)), columns + 1


def width_of(folded: tuple[int, ...]) -> int:
    """Return the width of the matrix of a folded shape; 0 if no matrix has it."""
    rows, columns = folded[-2], folded[-1] - 1
    width = columns if rows == -(-columns // 2) else 2 * rows  # only even widths are cut
    is_banded = width > columns and columns % BAND_UNIT == 0
    return width if columns > 0 and (width == columns or is_banded) else 0


def columns_of(width: int, band: int | None) -> int:
    """Return how many columns of a matrix are stored for each row."""
    return band if band and band < width and width % 2 == 0 else width


def blocks_of(matrix: Floats) -> list[Floats]:
    """Return the square blocks on the diagonal of a matrix (width, columns), as views."""
    width, columns = matrix.shape
    return [matrix[span.start : span.stop, : len(span)] for span in _spans(width, columns)]


def _spans(width: int, columns: int) -> list[range]:
    return [range(start, min(start + columns, width)) for start in range(0, width, columns)]


def _rectangles(folded: Floats) -> list[Floats]:
    """Return the rectangle of each block of a matrix."""
    columns = folded.shape[-1] - 1
    spans = _spans(width_of(folded.shape), columns)
    return [folded[span.start // 2 :][: -(-len(span) // 2), : len(span) + 1] for span in spans]


@dataclass(frozen=True, eq=False)
class FoldedTriangles(ComputedRows):
    """Rows of the rectangles of float32 matrices: (matrices, width, columns)."""

    matrices: Floats

    def read(self, start: int, stop: int) -> Bytes:
        """Return rows `start` to `stop`."""
        width, columns = self.matrices.shape[1:]
        height = folded_shape(width, columns)[0]
        rows = np.zeros((stop - start, columns + 1), np.float32)
        for place, out in enumerate(rows, start):
            matrix, row = divmod(place, height)
            number, row = divmod(row, -(-columns // 2))
            block = self.matrices[matrix, number * columns :][:columns]
            size = len(block)
            last = size - 1 - row
            out[: size - row] = block[row, row:size]
            out[size - row : size + 1] = block[last, last:size]
        return rows.view(np.uint8)


def unfolded(folded: Floats) -> Floats:
    """Return the matrix (width, columns) of its rectangles: the upper triangle of each block."""
    matrix = np.zeros((width_of(folded.shape), folded.shape[-1] - 1), folded.dtype)
    for block, rectangle in zip(blocks_of(matrix), _rectangles(folded), strict=True):
        for row, numbers in enumerate(rectangle):
            last = len(block) - 1 - row
            block[row, row:] = numbers[: len(block) - row]
            block[last, last:] = numbers[len(block) - row :]
    return matrix


def diagonal(folded: Floats) -> Floats:
    """Return the diagonal of the matrix of rectangles."""
    return np.concatenate([_diagonal(rectangle) for rectangle in _rectangles(folded)])


def _diagonal(rectangle: Floats) -> Floats:
    rows, width = np.arange(len(rectangle)), rectangle.shape[-1] - 1
    values = np.empty(width, rectangle.dtype)
    values[width - 1 - rows] = rectangle[rows, width - rows]
    values[rows] = rectangle[:, 0]
    return values
