"""Hessians: the second moments of the inputs of each matrix, read from a file."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from ggufkit.errors import FormatError, MissingImportanceError, ShapeError
from ggufkit.format.metadata import Metadata
from ggufkit.format.values import Strings, whole_number
from ggufkit.imatrix.hessian_file import (
    FIRST_ROW,
    KIND,
    MATRICES,
    MOMENT_COUNTS,
    MOMENTS,
    OWNERS,
    diagonal,
    first_row,
    unfolded,
    width_of,
)
from ggufkit.imatrix.matrix import HESSIAN_REMEDY, Counts, Entry, Imatrix, is_selected
from ggufkit.imatrix.moments import FITTED, PARTS
from ggufkit.models.layers import tensor_names
from ggufkit.models.model import Model, Tensor
from ggufkit.models.open import open as open_model
from ggufkit.models.rows import closing_on_error
from ggufkit.quants.kernels import EXPERT_AXES
from ggufkit.quants.parallel import Floats
from ggufkit.system.descriptors import AnyPath, as_path
from ggufkit.validation.typed_values import integer

# In an expert's mean, the mean of all experts counts as this many tokens for each column.
SHRINKAGE: Final = 0.25
# The least cosine of the same row in two files of a model. Rounding to one bit leaves 0.8, training
# on other texts more; rows of other models have about 0.
ALIKE: Final = 0.5


@dataclass(frozen=True, eq=False)
class Moments:
    """The second moments of the inputs of one tensor; `sums` are read when they are needed.

    They are symmetric: matrices hold the upper triangles of their blocks, and zeros below them.
    """

    sums: Tensor
    counts: Tensor

    @property
    def matrices(self) -> int:
        """Number of matrices of the tensor."""
        return int(self.counts.shape[-1])

    @property
    def width(self) -> int:
        """Number of inputs."""
        return width_of(self.sums.shape)

    @property
    def has_few_tokens(self) -> bool:
        """Whether all matrices together have fewer tokens than a block has columns."""
        return int(self.tokens()[FITTED].sum()) < self.sums.shape[-1] - 1

    def tokens(self) -> Counts:
        """Return the counts: (parts, matrices)."""
        return np.asarray(self.counts.numpy(), np.int64).reshape(PARTS, -1)

    def mean(self, matrix: int, part: int, pooled: Floats | None = None) -> Floats:
        """Return the mean moments (width, columns) of one matrix, shrunk towards `pooled` (of all).

        Raises FormatError if they are infinite or not numbers.
        """
        total, count = self.total(matrix, part), float(self.tokens()[part, matrix])
        if pooled is not None:
            added = SHRINKAGE * self.width
            total, count = total + np.float32(added) * pooled, count + added
        mean: Floats = total / np.float32(max(count, 1))
        if not np.isfinite(mean).all():
            raise _not_finite(self.sums.name.removesuffix(MOMENTS), self.sums.path)
        return mean

    def pooled(self, part: int) -> Floats:
        """Return the mean moments of all matrices together; reads all of them."""
        sums = (self.total(matrix, part) for matrix in range(self.matrices))
        count = self.tokens()[part].sum()
        mean: Floats = functools.reduce(np.add, sums) / np.float32(max(int(count), 1))
        return mean

    def total(self, matrix: int, part: int) -> Floats:
        """Return the sums of a part of one matrix."""
        return unfolded(self._folded(matrix, part))

    def _folded(self, matrix: int, part: int) -> Floats:
        sums = self.sums[part]
        return np.asarray((sums[matrix] if self.matrices > 1 else sums).numpy())

    def squares(self) -> Entry:
        """Return the sums of squares of all parts, as importance data has them."""
        total = np.zeros((self.matrices, self.width), np.float32)
        for part in range(PARTS):
            for matrix in range(self.matrices):
                total[matrix] += diagonal(self._folded(matrix, part))
        return Entry(total, self.tokens().sum(axis=0))


@dataclass(frozen=True)
class Hessian:
    """The second moments of a model's matrices, by the names of their tensors.

    `entries` are lazy. `source` is the opened file. Tensors count only if their names hold one of
    `include` (or there is none) and none of `exclude`.
    """

    source: Model = field(repr=False)
    entries: Mapping[str, Moments]
    path: Path
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def moments(self, name: str) -> Moments | None:
        """Return the moments of a tensor, None if it has none or the name is not selected."""
        return self.entries.get(name) if self._selects(name) else None

    def _selects(self, name: str) -> bool:
        return is_selected(name, self.include, self.exclude)

    @classmethod
    def open(cls, path: AnyPath) -> Hessian:
        """Read the header of a file.

        Raises FormatError (a ValueError) for a file that is not a Hessian, is damaged, or has
        tensors that no token reached; OSError as the builtin `open` does.
        """
        location = as_path(path)
        source = open_model(location)
        with closing_on_error(source.close):
            return cls(source, _entries(source, location), location)

    @property
    def metadata(self) -> Metadata:
        """The keys of the file."""
        return self.source.metadata

    def importance(self) -> Imatrix:
        """Return the importance matrix that was computed with it; reads the diagonals."""
        by_owner = {id(moments): moments for moments in self.entries.values()}
        squares = {key: moments.squares() for key, moments in by_owner.items()}
        entries = {name: squares[id(moments)] for name, moments in sorted(self.entries.items())}
        for name, entry in entries.items():
            if not np.isfinite(entry.sums).all():
                raise _not_finite(name, self.path)
        size, tokens = (whole_number(self.metadata.get(f"hessian.{key}")) or 0 for key in _SIZES)
        datasets = (str(self.metadata.get("hessian.dataset", "")),)
        chunks = integer(tokens // max(size, 1), "the number of chunks", most=MAX_CHUNKS)
        return Imatrix(
            entries,
            datasets,
            chunks,
            size,
            path=self.path,
            limit=self.source.readers_limit,
            is_hessian=True,
        )

    def require(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Raise an error that names the tensors that this Hessian does not fit or cover.

        `tensors` are pairs of the name in the Hessian's model, and the tensor. A row of each is
        read: if most differ from the model that the Hessian was computed on, it is another model.
        """
        pairs = [(name, tensor) for name, tensor in tensors if self._selects(name)]
        misfits = [t.name for name, t in pairs if name in self.entries and not self._fits(name, t)]
        if misfits:
            raise ShapeError(
                f"the Hessian {str(self.path)!r} is of another model: {tensor_names(misfits)}",
                remedy=HESSIAN_REMEDY,
            )
        missing = [tensor.name for name, tensor in pairs if name not in self.entries]
        if missing:
            raise MissingImportanceError(
                f"the Hessian {str(self.path)!r} does not cover {tensor_names(missing)}",
                remedy=f"{HESSIAN_REMEDY}; or leave tensors out (exclude_weights=...)",
            )
        unlike = [tensor.name for name, tensor in pairs if not self._resembles(name, tensor)]
        if len(unlike) > len(pairs) / 2:
            raise MissingImportanceError(
                f"the Hessian {str(self.path)!r} is of another model, with other weights in "
                f"{tensor_names(unlike)}",
                remedy=HESSIAN_REMEDY,
            )

    def _resembles(self, name: str, tensor: Tensor) -> bool:
        """Whether a tensor may come from the Hessian's model, rounded or trained further."""
        first = self.source.tensors.get(name + FIRST_ROW)
        if first is None:
            return True
        rows = (first.numpy().astype(np.float64), first_row(tensor).astype(np.float64))
        if rows[0].shape != rows[1].shape:
            return False
        product, squares = rows[0] @ rows[1], (rows[0] @ rows[0]) * (rows[1] @ rows[1])
        return not product < ALIKE * math.sqrt(squares)  # rows of zeros resemble every row

    def _fits(self, name: str, tensor: Tensor) -> bool:
        moments = self.entries[name]
        stacked = tensor.shape[-EXPERT_AXES] if len(tensor.shape) >= EXPERT_AXES else 1
        return (stacked, tensor.shape[-1]) == (moments.matrices, moments.width)


MAX_CHUNKS: Final = (1 << 32) - 1  # files count them in 32 bits
_SIZES: Final = ("chunk_size", "token_count")


def _wrong(message: str, path: Path | None) -> FormatError:
    return FormatError(message, remedy=HESSIAN_REMEDY, path=str(path or ""))


def _not_finite(name: str, path: Path | None) -> FormatError:
    return _wrong(f"the second moments of {name!r} are infinite or not numbers", path)


def _entries(source: Model, path: Path) -> dict[str, Moments]:
    if source.metadata.get("general.type") != KIND:
        raise _wrong("this GGUF file is not a Hessian", path)
    names, owners = (source.metadata.get(key) for key in (MATRICES, OWNERS))
    if not (isinstance(names, Strings) and isinstance(owners, Strings)) or len(names) != len(
        owners
    ):
        raise _wrong("this Hessian does not list its matrices", path)
    by_owner = {owner: _moments(source, owner, path) for owner in sorted(set(owners))}
    unseen = [owner for owner, data in by_owner.items() if not data.tokens().sum(axis=1).all()]
    if unseen:
        raise FormatError(
            f"no token reached {tensor_names(unseen)} in this Hessian",
            remedy="Compute it on a longer text",
            path=str(path),
        )
    return {name: by_owner[owner] for name, owner in zip(names, owners, strict=True)}


def _moments(source: Model, owner: str, path: Path) -> Moments:
    sums, counts = (source.tensors.get(owner + end) for end in (MOMENTS, MOMENT_COUNTS))
    if sums is None or counts is None:
        raise _wrong(f"this Hessian has no data of {owner!r}", path)
    matrices = counts.shape[-1] if len(counts.shape) == len((PARTS, 1)) else 0
    stack = (matrices,) if matrices > 1 else ()
    expected = (PARTS, max(matrices, 1))
    kinds = (sums.type.name, counts.type.name)
    is_folded = sums.shape[:-2] == (PARTS, *stack) and width_of(sums.shape) > 0
    if kinds != ("F32", "I64") or not is_folded or counts.shape != expected:
        raise _wrong(f"the data of {owner!r} in this Hessian does not fit together", path)
    if (counts.numpy() < 0).any():
        raise _wrong(f"a token count of {owner!r} is negative", path)
    return Moments(sums, counts)
