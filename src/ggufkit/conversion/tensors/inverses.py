"""Operations undone: what a checkpoint held, from what its GGUF file holds.

A rule that gives one tensor to several targets says in the steps of each which part it takes
(`split`, `part`, `every`, `rows`); the steps behind that are undone for each part, the parts are
joined, and the steps before it are undone for the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from ggufkit.conversion.tensors.operations import (
    Floats,
    add,
    compute,
    concat,
    half_pairs,
    perform,
    regroup_order,
    regroup_shared_order,
    reshape,
    row_axis,
    scale,
    squeeze,
    take,
    transpose,
    unsqueeze,
)
from ggufkit.errors import CheckpointError, ShapeError
from ggufkit.model.model import Tensor
from ggufkit.model.sources import from_array

CUTTING: Final = ("split", "part", "every", "rows")


class Done(NamedTuple):
    """An operation as it was done, with the numbers that it was given."""

    name: str
    arguments: tuple[Any, ...]


class Piece(NamedTuple):
    """A tensor of the GGUF file and the operations that made it."""

    tensor: Tensor
    steps: tuple[Done, ...]


def undone(pieces: Sequence[Piece]) -> Tensor:
    """Return the one tensor that all pieces were made of."""
    cuts = [_cut(piece.steps) for piece in pieces]
    if len(pieces) == 1:
        return _undo(pieces[0].tensor, pieces[0].steps)
    if None in cuts:
        raise CheckpointError(f"{pieces[0].tensor.name!r} and others have no way back")
    parts = [
        (piece.steps[cut], _undo(piece.tensor, piece.steps[cut + 1 :]))
        for piece, cut in zip(pieces, cuts, strict=True)
        if cut is not None
    ]
    return _undo(_joined(parts), pieces[0].steps[: cuts[0]])


def _cut(steps: Sequence[Done]) -> int | None:
    return next((at for at, step in enumerate(steps) if step.name in CUTTING), None)


def _undo(tensor: Tensor, steps: Sequence[Done]) -> Tensor:
    if steps and not tensor.shape:
        raise ShapeError(f"{tensor.name!r} is one number, and no {steps[0].name} makes one")
    for step in reversed(steps):
        if step.name not in INVERSES:
            raise CheckpointError(f"{tensor.name!r}: {step.name} cannot be undone")
        tensor = perform(tensor, step.name, step.arguments, INVERSES)
    return tensor


def _joined(parts: Sequence[tuple[Done, Tensor]]) -> Tensor:
    """Join parts in their order, side by side or, where they took every n-th row, in turns."""
    ordered = [tensor for _, tensor in sorted(parts, key=lambda part: part[0].arguments[0])]
    first = ordered[0]
    axis = 0 if parts[0][0].name == "rows" else row_axis(first)
    outer = int(np.prod(first.shape[:axis], dtype=np.int64))
    counts = [tensor.shape[axis] for tensor in ordered]
    inner = first.shape[axis + 1 :]
    flat = [reshape(t, (outer * n, *inner)) for t, n in zip(ordered, counts, strict=True)]
    starts = np.cumsum([0, *(outer * n for n in counts)])
    blocks = [
        start + np.arange(outer * n).reshape(outer, n)
        for start, n in zip(starts, counts, strict=False)
    ]
    in_turns = parts[0][0].name == "every"
    index = np.stack(blocks, axis=2) if in_turns else np.concatenate(blocks, axis=1)
    shape = (*first.shape[:axis], sum(counts), *inner)
    return take(concat(first.name, flat), np.ascontiguousarray(index).reshape(-1), shape)


def _log_of_minus(tensor: Tensor) -> Tensor:
    def log(array: Floats) -> Floats:
        with np.errstate(invalid="ignore", divide="ignore"):  # a file may hold anything
            return np.log(-array.astype(np.float64)).astype(array.dtype)

    return compute(tensor, log)


def _back(order: Callable[..., Any]) -> Callable[..., Tensor]:
    def undo(tensor: Tensor, *arguments: int) -> Tensor:
        return take(tensor, np.argsort(order(tensor, *arguments)), tensor.shape)

    return undo


def _merged(tensor: Tensor, *sizes: int) -> Tensor:
    """Return the first axes, as many as there are sizes, as one."""
    return reshape(tensor, (-1, *tensor.shape[len(sizes) :]))


def _from_start(tensor: Tensor, start: int, _stop: int | None = None) -> Tensor:
    """Return the rows behind those that were left out, which are zeros now."""
    if start == 0:
        return tensor
    if start < 0 or not tensor.shape or start > tensor.shape[0]:
        raise ShapeError(
            f"{tensor.name!r} of shape {tensor.shape} is not what follows {start} rows"
        )
    zeros = np.zeros((start, *tensor.shape[1:]), np.float32)
    return concat(tensor.name, [from_array(tensor.name, zeros, tensor.type), tensor])


INVERSES: Final[dict[str, Callable[..., Tensor]]] = {
    "add": lambda tensor, number: add(tensor, -number),
    "neg_exp": _log_of_minus,
    "permute": _back(half_pairs),
    "regroup": _back(regroup_order),
    "regroup_shared": _back(regroup_shared_order),
    "rows": _from_start,
    "scale": lambda tensor, factor: scale(tensor, 1 / factor),
    "squeeze": unsqueeze,
    "transpose": transpose,
    "unflatten": _merged,
    "unpermute": lambda tensor, heads: take(tensor, half_pairs(tensor, heads), tensor.shape),
    "unsqueeze": squeeze,
}
