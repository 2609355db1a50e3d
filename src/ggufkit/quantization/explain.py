"""Explain a quantized model: why each tensor has its type, and its error.

The loss is what `target` minimizes: the relative error of a tensor, weighted by importance data
if there is some, times the sensitivity of predictions to it. It is measured on all rows, from
the blocks as written.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from ggufkit.errors import ShapeError
from ggufkit.models.byte_ranges import decoded_rows
from ggufkit.models.model import Model, Tensor
from ggufkit.models.rows import rows_and_width
from ggufkit.quantization.decision import Decision, Quantization
from ggufkit.quantization.losses.relative_errors import weighted_squares
from ggufkit.quantization.losses.sensitivities import sensitivities
from ggufkit.quants.parallel import Floats
from ggufkit.system.cpu import worker_count
from ggufkit.system.threads import Progress, in_turn, pool_of

PIECE: Final = 1 << 20  # elements that are decoded together


@dataclass(frozen=True)
class Explanation:
    """The type of one tensor before and after, why, and what is lost.

    `error` is the root of the squared error relative to the squares, both weighted by importance
    data if there is some; `share` is the part of the whole model's loss. Both are None if no data
    was read. `share_of_bytes` is the part of the bytes of all tensors.
    """

    name: str
    before: str
    after: str
    why: str
    nbytes: int
    share_of_bytes: float
    error: float | None = None
    share: float | None = None


def explain(
    quantization: Quantization,
    written: Model | None = None,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> list[Explanation]:
    """Return an explanation of each tensor of a result, in its order.

    `written` is the opened output; without it no data is read, and errors are None.
    `progress(done, total)` counts tensors. Raises ShapeError if `written` is not the output.
    """
    total = sum(decision.after.nbytes for decision in quantization.decisions) or 1
    explanations = [
        Explanation(
            decision.after.name,
            decision.before.type.name,
            decision.after.type.name,
            "; ".join(_reasons(decision)),
            decision.after.nbytes,
            decision.after.nbytes / total,
        )
        for decision in quantization.decisions
    ]
    if written is None:
        return explanations
    errors = list(_errors(quantization, written, worker_count(threads), progress))
    weight = sensitivities([tensor.name for tensor in explanations])
    losses = [weight[item.name] * error for item, error in zip(explanations, errors, strict=True)]
    whole = sum(losses) or 1
    return [
        replace(tensor, error=math.sqrt(error), share=loss / whole)
        for tensor, error, loss in zip(explanations, errors, losses, strict=True)
    ]


def _reasons(decision: Decision) -> Iterator[str]:
    yield decision.why
    width = decision.before.shape[-1] if decision.before.shape else 1
    if decision.fell_from:
        yield f"rows of {width} do not divide into blocks of {decision.fell_from}"
    if decision.promoted_from:
        yield f"{decision.promoted_from} needs importance data, which is missing"
    if decision.search:
        yield f"blocks searched for ({decision.search})"
    if decision.is_fed_back:
        from ggufkit.quantization.gptq_source import outcome_text  # noqa: PLC0415 (slow to import)

        yield outcome_text(decision.after)


def _errors(
    quantization: Quantization, written: Model, threads: int, progress: Progress | None
) -> Iterator[float]:
    tasks: list[list[Callable[[], tuple[float, float]]]] = []
    for decision in quantization.decisions:
        tensor = written.tensors.get(decision.after.name)
        if tensor is None or (tensor.type, tensor.shape) != (
            decision.after.type,
            decision.after.shape,
        ):
            raise ShapeError(
                f"the file to measure has another tensor {decision.after.name!r} than the result",
                remedy="Name the file that was written from it",
            )
        tasks.append(list(_pieces(decision, tensor)) if decision.is_changed else [])
    with pool_of(threads) as pool:
        measured = in_turn(pool, (task for group in tasks for task in group), 2 * threads)
        for number, name in enumerate(tasks, 1):
            parts = [next(measured) for _ in name]
            error, energy = (sum(part[side] for part in parts) for side in (0, 1))
            if progress:
                progress(number, len(tasks))
            yield error / energy if energy else 0.0


def _pieces(decision: Decision, after: Tensor) -> Iterator[Callable[[], tuple[float, float]]]:
    rows, width = rows_and_width(after.shape)
    columns = None if decision.weights is None else decision.weights.reshape(-1, width)
    height = rows // (1 if columns is None else len(columns))
    step = max(PIECE // max(width, 1), 1)
    for first in range(0, rows, max(height, 1)):
        weights = None if columns is None else columns[first // height]
        for start in range(first, first + height, step):
            stop = min(start + step, first + height)
            yield functools.partial(_measured, decision.before, after, start, stop, weights)


def _measured(
    before: Tensor, after: Tensor, start: int, stop: int, weights: Floats | None
) -> tuple[float, float]:
    old, new = (decoded_rows(tensor, start, stop) for tensor in (before, after))
    return weighted_squares(old - new, weights), weighted_squares(old, weights)
