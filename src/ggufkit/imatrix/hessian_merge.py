"""Add up the Hessians of parts of a text."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ggufkit.errors import FormatError, ShapeError
from ggufkit.format.coerce import typed
from ggufkit.format.values import whole_number
from ggufkit.imatrix.hessian import Hessian
from ggufkit.imatrix.hessian_file import BAND, KIND, MATRICES, MOMENT_COUNTS, MOMENTS, OWNERS
from ggufkit.imatrix.matrix import HESSIAN_REMEDY
from ggufkit.models.byte_ranges import decoded_rows
from ggufkit.models.model import Tensor
from ggufkit.models.open import open as open_model
from ggufkit.models.rows import ComputedRows
from ggufkit.models.tensors.in_memory import as_tensor
from ggufkit.output.write import write
from ggufkit.system.descriptors import AnyPath, as_path
from ggufkit.system.mapped_file import Bytes


@dataclass(frozen=True, eq=False)
class SummedRows(ComputedRows):
    """Rows of float32 tensors of one shape, added up in float64."""

    tensors: Sequence[Tensor]

    def read(self, start: int, stop: int) -> Bytes:
        """Return rows `start` to `stop`; FormatError if they are infinite or not numbers."""
        parts = (decoded_rows(tensor, start, stop) for tensor in self.tensors)
        total = sum(part.astype(np.float64) for part in parts)
        with np.errstate(over="ignore"):  # refused below
            rows = np.asarray(total, np.float32)
        if not np.isfinite(rows).all():
            name = self.tensors[0].name.removesuffix(MOMENTS)
            raise FormatError(
                f"the second moments of {name!r} are infinite or not numbers",
                remedy=HESSIAN_REMEDY,
            )
        return rows.view(np.uint8)


def is_hessian(path: AnyPath) -> bool:
    """Whether a file is a Hessian; raises no FormatError for other files."""
    with contextlib.suppress(FormatError), open_model(as_path(path)) as model:
        return model.metadata.get("general.type") == KIND
    return False


def merge_hessians(paths: Sequence[AnyPath], target: AnyPath, *, clobber: bool = True) -> Path:
    """Write the sum of Hessians of one model, computed on parts of a text; return its path.

    Sums and counts are added up, so the parts weigh by their tokens. Raises ShapeError for Hessians
    of several models, or with different bands; FormatError for values that are not numbers.
    """
    with contextlib.ExitStack() as opened:
        hessians = [Hessian.open(path) for path in paths]
        for hessian in hessians:
            opened.callback(hessian.source.close)
            _require_alike(hessians[0], hessian)
        tensors = [_sum(tensor, hessians) for tensor in hessians[0].source.tensors.values()]
        texts, datasets, tokens = (
            [hessian.metadata.get(f"hessian.{key}") for hessian in hessians]
            for key in ("text", "dataset", "token_count")
        )
        is_one_text, digests = len(set(texts)) == 1, "".join(map(str, texts)).encode()
        keys = {
            "hessian.text": texts[0] if is_one_text else hashlib.sha256(digests).hexdigest(),
            "hessian.dataset": ", ".join(dict.fromkeys(map(str, datasets))),
            "hessian.token_count": typed("uint64", sum(whole_number(n) or 0 for n in tokens)),
        }
        model = hessians[0].source.replace(
            metadata=hessians[0].metadata.updated(keys), tensors=tensors
        )
        sources = [hessian.source for hessian in hessians]
        inputs = [file for source in sources for file in source.inputs]
        model.derived_from(inputs, *(source.readers_limit for source in sources))
        return write(model, as_path(target), clobber=clobber)[0]


def _require_alike(first: Hessian, other: Hessian) -> None:
    bands = [hessian.metadata.get(BAND) for hessian in (first, other)]
    if bands[0] != bands[1]:
        words = ["full" if band is None else f"of bands of {band} columns" for band in bands]
        raise ShapeError(
            f"the Hessian {str(first.path)!r} is {words[0]}, and {str(other.path)!r} is {words[1]}",
            remedy="Compute all parts alike: `ggufkit imatrix compute --hessian FILE --band N`",
        )
    keys = ("hessian.model", MATRICES, OWNERS)
    shapes = [{name: t.shape for name, t in h.source.tensors.items()} for h in (first, other)]
    if shapes[0] != shapes[1] or any(first.metadata.get(k) != other.metadata.get(k) for k in keys):
        raise ShapeError(
            f"the Hessians {str(first.path)!r} and {str(other.path)!r} are of different models",
            remedy="Merge only Hessians that were computed with the same model",
        )


def _sum(tensor: Tensor, hessians: Sequence[Hessian]) -> Tensor:
    tensors = [hessian.source.tensors[tensor.name] for hessian in hessians]
    if tensor.name.endswith(MOMENTS):
        return Tensor.over(tensor.name, tensor.type, tensor.shape, SummedRows(tensors))
    if tensor.name.endswith(MOMENT_COUNTS):
        return as_tensor(tensor.name, np.sum([t.numpy() for t in tensors], axis=0))
    return tensor
