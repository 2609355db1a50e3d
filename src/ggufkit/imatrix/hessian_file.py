"""Hessian files: second moments of the inputs of matrices, in GGUF.

`OWNER.moments` holds sums of products (F32, shape (parts, [matrices,] rows, columns), folded as
`folded_shape` says) and `OWNER.moment_counts` the numbers of tokens. The first part is to quantize
with, the second was held out. `hessian.matrices` and `hessian.owners` list each matrix with the
owner of its inputs, and `NAME.first_row` holds the first row of its weights, which shows whether
the Hessian is of another model.
"""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import numpy as np

from ggufkit.errors import ValueTypeError
from ggufkit.format.coerce import typed
from ggufkit.format.metadata import Metadata
from ggufkit.format.types import tensor_type
from ggufkit.imatrix.matrix import Counts
from ggufkit.imatrix.moments import InputMoments
from ggufkit.inspection.digest import CONTENT, digest
from ggufkit.models.layers import tensor_names
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


class MomentsStore(contextlib.AbstractContextManager["MomentsStore"]):
    """Keeps the sums of several passes until they are saved; a context manager.

    They are in memory, or in a file without a name in the folder of the output.
    """

    def __init__(self, target: Path, *, in_memory: bool) -> None:
        """Prepare to write `target`."""
        self._target = target
        self._sums: dict[str, Floats] = {}
        self._counts: dict[str, Counts] = {}
        self._file: IO[bytes] | None = None
        if not in_memory:
            self._file = tempfile.TemporaryFile(prefix=".ggufkit-", dir=target.parent)  # noqa: SIM115 (`__exit__` closes it)

    def keep(self, moments: InputMoments) -> None:
        """Add the sums of a pass; ValueTypeError if some are infinite or not numbers."""
        damaged = [name for name, sums in moments.sums.items() if not np.isfinite(sums).all()]
        if damaged:
            raise ValueTypeError(
                f"the second moments of {tensor_names(damaged)} are infinite or not numbers",
                remedy="The model is damaged or overflows float16; try the model in BF16 or F32",
            )
        self._counts |= moments.counts
        for name, sums in moments.sums.items():
            self._sums[name] = sums
            if self._file:
                offset = self._file.tell()
                self._file.write(sums.data)
                self._file.flush()
                self._sums[name] = np.memmap(self._file, np.float32, "r", offset, sums.shape)

    def save(self, moments: InputMoments, origin: MomentsOrigin) -> None:
        """Write the file, whole or not at all."""
        owners = dict(sorted(moments.owners.items()))
        tokens = max(int(counts.sum(axis=0).max()) for counts in self._counts.values())
        metadata = origin.keys(tokens) | {
            MATRICES: typed("array[string]", list(owners)),
            OWNERS: typed("array[string]", list(owners.values())),
        }
        tensors: list[Tensor] = []
        for name in sorted(self._sums):
            tensors.append(_folded(name + MOMENTS, self._sums[name]))
            tensors.append(as_tensor(name + MOMENT_COUNTS, self._counts[name]))
        rows = origin.first_rows(owners).items()
        tensors.extend(as_tensor(name, row) for name, row in rows)
        write(Model(Metadata(metadata), Tensors(tensors)), self._target)

    def __exit__(self, *_: object) -> None:
        self._sums.clear()
        if self._file:
            self._file.close()


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
