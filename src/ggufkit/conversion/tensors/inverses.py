"""Undoes operations: restores a checkpoint's tensor from tensors of its GGUF file.

If a rule gives one tensor to several targets, a step of each target takes its part (`split`,
`part`, `every`, `rows`). Later steps are undone for each part, the parts are joined, and earlier
steps are undone for the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ggufkit.conversion.tensors.moves import concat, reshape, take
from ggufkit.conversion.tensors.operations import OPERATIONS, undo
from ggufkit.errors import CheckpointError, ShapeError
from ggufkit.models.model import Tensor


class UndoStep(NamedTuple):
    """An operation that was done, with its arguments."""

    name: str
    arguments: tuple[Any, ...]


class MadeTensor(NamedTuple):
    """A tensor of the GGUF file and the operations that made it."""

    tensor: Tensor
    steps: tuple[UndoStep, ...]


def undone(pieces: Sequence[MadeTensor]) -> Tensor:
    """Return the tensor that all pieces were cut from."""
    pieces = [p for p in pieces if all(OPERATIONS[step.name].uses_input for step in p.steps)]
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


def _cut(steps: Sequence[UndoStep]) -> int | None:
    return next((index for index, step in enumerate(steps) if OPERATIONS[step.name].parts), None)


def _undo(tensor: Tensor, steps: Sequence[UndoStep]) -> Tensor:
    if steps and not tensor.shape:
        raise ShapeError(f"{tensor.name!r} is one number, and no {steps[0].name} makes one")
    for step in reversed(steps):
        tensor = undo(tensor, step.name, step.arguments)
    return tensor


def _joined(parts: Sequence[tuple[UndoStep, Tensor]]) -> Tensor:
    """Join parts in order: one after the other, or interleaved if they took every n-th row."""
    ordered = [tensor for _, tensor in sorted(parts, key=lambda part: part[0].arguments[0])]
    first = ordered[0]
    rule = OPERATIONS[parts[0][0].name].parts
    assert rule is not None  # noqa: S101 (`_cut` found it so)
    axis = rule.axis(first)
    outer = int(np.prod(first.shape[:axis], dtype=np.int64))
    counts = [tensor.shape[axis] for tensor in ordered]
    inner = first.shape[axis + 1 :]
    flat = [reshape(t, (outer * n, *inner)) for t, n in zip(ordered, counts, strict=True)]
    starts = np.cumsum([0, *(outer * n for n in counts)])
    blocks = [
        start + np.arange(outer * n).reshape(outer, n)
        for start, n in zip(starts, counts, strict=False)
    ]
    index = np.stack(blocks, axis=2) if rule.in_turns else np.concatenate(blocks, axis=1)
    shape = (*first.shape[:axis], sum(counts), *inner)
    return take(concat(first.name, flat), np.ascontiguousarray(index).reshape(-1), shape)
