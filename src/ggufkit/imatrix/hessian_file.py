"""Hessian files: second moments of the inputs of matrices, in GGUF.

`OWNER.moments` holds sums of products (F32, shape (parts, [matrices,] rows, columns), folded as
`folded_shape` says) and `OWNER.moment_counts` the numbers of tokens. The first part is to quantize
with, the second is held out. `hessian.matrices` and `hessian.owners` list each matrix with the
owner of its inputs, and `NAME.first_row` holds the first row of its weights, which shows whether
the Hessian is of another model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

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
MATRICES: Final = "hessian.matrices"
OWNERS: Final = "hessian.owners"


@dataclass(frozen=True)
class MomentsOrigin:
    """What moments were computed from."""

    model: Path
    content: bytes
    dataset: str
    chunk_size: int

    def keys(self, tokens: int) -> dict[str, object]:
        """Return the keys of a file; reads the whole model for its digest."""
        with open_model(self.model) as model:
            model_digest = digest(model, CONTENT, tensors=False).model[CONTENT]
        return {
            "general.type": KIND,
            "hessian.model": model_digest,
            "hessian.text": hashlib.sha256(self.content).hexdigest(),
            "hessian.dataset": self.dataset,
            "hessian.chunk_size": typed("uint32", self.chunk_size),
            "hessian.token_count": typed("uint64", tokens),
        }

    def first_rows(self, names: Iterable[str]) -> dict[str, Numbers]:
        """Return the first rows, by which a file is compared with a model."""
        with open_model(self.model) as model:
            tensors = (model.tensors[name] for name in names if name in model.tensors)
            return {tensor.name + FIRST_ROW: first_row(tensor) for tensor in tensors}


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
    """Return the tensors of one owner; `sums` have the shape (parts, matrices, width, width)."""
    return _folded(name + MOMENTS, sums), as_tensor(name + MOMENT_COUNTS, counts)


def _folded(name: str, sums: Floats) -> Tensor:
    parts, matrices, width, _ = sums.shape
    stack = (matrices,) if matrices > 1 else ()
    source = FoldedTriangles(sums.reshape(-1, width, width))
    return Tensor.over(name, tensor_type("F32"), (parts, *stack, *folded_shape(width)), source)


def folded_shape(width: int) -> tuple[int, int]:
    """Return the shape of the rectangle that holds one triangle of a symmetric W x W matrix.

    Its row i is row i of the upper triangle, and then row W - 1 - i: W + 1 numbers together.
    """
    return -(-width // 2), width + 1


@dataclass(frozen=True, eq=False)
class FoldedTriangles(ComputedRows):
    """Rows of the rectangles of float32 matrices: (matrices, width, width)."""

    squares: Floats

    def read(self, start: int, stop: int) -> Bytes:
        """Return rows `start` to `stop`."""
        width = self.squares.shape[-1]
        rows = np.empty((stop - start, width + 1), np.float32)
        for place, out in enumerate(rows, start):
            matrix, row = divmod(place, folded_shape(width)[0])
            last = width - 1 - row
            out[: width - row] = self.squares[matrix, row, row:]
            out[width - row :] = self.squares[matrix, last, last:]
        return rows.view(np.uint8)


def unfolded(rectangle: Floats) -> Floats:
    """Return the matrix of a rectangle."""
    width = rectangle.shape[-1] - 1
    square = np.empty((width, width), rectangle.dtype)
    for row, numbers in enumerate(rectangle):
        last = width - 1 - row
        square[row, row:] = square[row:, row] = numbers[: width - row]
        square[last, last:] = square[last:, last] = numbers[width - row :]
    return square


def diagonal(rectangle: Floats) -> Floats:
    """Return the diagonal of the matrix of a rectangle."""
    rows, width = np.arange(len(rectangle)), rectangle.shape[-1] - 1
    values = np.empty(width, rectangle.dtype)
    values[width - 1 - rows] = rectangle[rows, width - rows]
    values[rows] = rectangle[:, 0]
    return values
