"""Quantize tensors with a Hessian: feed errors back where that helps on inputs held out.

How much the moments are damped is chosen for each matrix on a sample of its rows: errors are fed
back by the moments to quantize with, and measured by those held out. Then all moments are used.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np

from ggufkit.imatrix.hessian import ALL, FITTED, HELD_OUT, Hessian, Moments, Outcomes
from ggufkit.models.layers import layer_of
from ggufkit.models.model import Tensor
from ggufkit.models.rows import Made
from ggufkit.models.sources import Retyped
from ggufkit.quantization.feedback.last_results import LastResults
from ggufkit.quants import codec
from ggufkit.quants.blas import blas_limited, limited_blocks
from ggufkit.quants.feedback import Feedback, factor_of, moment_errors
from ggufkit.quants.parallel import Floats
from ggufkit.system.mapped_file import Bytes

DAMPINGS: Final = (0.01, 0.1, 1.0)  # as shares of the mean diagonal
SAMPLE: Final = 128  # rows that choose among them
TILE: Final = 1 << 22  # elements that are quantized together
_OPTIONS: Final = ("hessian", "include_weights", "exclude_weights")
LEAST_ROWS: Final = 64  # of them: fewer would waste the time that reading moments takes


class FeedbackMemory:
    """What the tensors of one quantization share: outcomes, and the last parts of the work.

    It is pickled empty: other processes do their own work.
    """

    def __init__(self, outcomes: Outcomes | None = None) -> None:
        """Start with nothing, or with outcomes that quantizations of one model share."""
        self.outcomes: Outcomes = {} if outcomes is None else outcomes
        self.pooled: LastResults[Floats] = LastResults(3)
        self.choices: LastResults[_FeedbackChoice | None] = LastResults(2)
        self.tiles: LastResults[Bytes] = LastResults(16)
        self.choosing: threading.Lock = threading.Lock()

    def __reduce__(self) -> tuple[type[FeedbackMemory], tuple[()]]:
        """Pickle nothing."""
        return FeedbackMemory, ()


@dataclass(frozen=True, eq=False)
class FedBack(Made):
    """A tensor quantized with errors fed back; `plain` is the same without."""

    plain: Retyped
    moments: Moments
    memory: FeedbackMemory

    def read(self, start: int, stop: int) -> Bytes:
        """Quantize rows `start` to `stop`: tiles of rows, always the same ones."""
        found: list[Bytes] = []
        at = start
        while at < stop:
            matrix, row = divmod(at, self._height)
            number, skipped = divmod(row, self._step)
            with blas_limited(1):  # there is a thread for each core already
                tile = self.memory.tiles.get(
                    (self.name, matrix, number), functools.partial(self._tile, matrix, number)
                )
            found.append(tile[skipped : skipped + stop - at])
            at += len(found[-1])
        return np.concatenate(found) if found else self.plain.read(start, stop)

    @property
    def name(self) -> str:
        """The name of the tensor."""
        return self.plain.tensor.name

    @property
    def outcomes(self) -> list[FeedbackOutcome]:
        """What feedback did for each matrix that was written in this process."""
        found = (self.memory.outcomes.get(self._key(n)) for n in range(self.moments.matrices))
        return [FeedbackOutcome(*outcome) for outcome in found if outcome]

    def _key(self, matrix: int) -> tuple[object, ...]:
        """Return what an outcome depends on, for one model and one Hessian."""
        return self.name, self.plain.type.name, self.plain.search, matrix

    @property
    def _height(self) -> int:
        """Rows of one matrix."""
        return self.plain.tensor.rows // self.moments.matrices

    @property
    def _step(self) -> int:
        """Rows of a tile."""
        return max(TILE // self.moments.width, LEAST_ROWS)

    def _tile(self, matrix: int, number: int) -> Bytes:
        """Return a tile: rows whose errors grow by feedback are as without it."""
        first = matrix * self._height + number * self._step
        stop = min(first + self._step, (matrix + 1) * self._height)
        rows = self._rows(first, stop)
        plain = self.plain.packed(rows, first)
        chosen = self.memory.choices.get(
            (self.name, matrix), functools.partial(self._choice, matrix)
        )
        if chosen is None:
            return plain
        made = chosen.feedback.encode(rows, self.plain.type, search=self.plain.search)
        before, after = (self._errors(rows, packed, chosen.held_out) for packed in (plain, made))
        return np.where((after < before)[:, None], made, plain)

    def _choice(self, matrix: int) -> _FeedbackChoice | None:
        """Return how errors of a matrix are fed back, None if they are not.

        One matrix at a time: this takes much memory.
        """
        with self.memory.choosing:
            held_out = self._mean(matrix, HELD_OUT)
            known = self.memory.outcomes.get(self._key(matrix))
            outcome = FeedbackOutcome(*known) if known else self._outcome(matrix, held_out)
            self.memory.outcomes[self._key(matrix)] = outcome
            mean = self._mean(matrix, ALL) if outcome.helps else None
            factor = None if mean is None else self._factor(mean, outcome.damping)
        if factor is None:
            return None
        return _FeedbackChoice(Feedback.of(factor, self.plain.type), held_out)

    def _outcome(self, matrix: int, held_out: Floats) -> FeedbackOutcome:
        """Return what feedback does for a sample of rows."""
        first = matrix * self._height
        places = np.unique(np.linspace(0, self._height - 1, SAMPLE).astype(int))
        sample = np.concatenate([self._rows(first + at, first + at + 1) for at in places.tolist()])
        fitted = self._mean(matrix, FITTED)
        plain = self._errors(sample, self.plain.packed(sample, first), held_out).sum()
        errors: dict[float, float] = {}
        for damping in DAMPINGS:
            factor = self._factor(fitted, damping)
            if factor is not None:
                feedback = Feedback.of(factor, self.plain.type)
                made = feedback.encode(sample, self.plain.type, search=self.plain.search)
                errors[damping] = float(self._errors(sample, made, held_out).sum())
        best = min(errors, key=errors.__getitem__, default=0.0)
        return FeedbackOutcome(float(plain), errors.get(best), best)

    def _factor(self, moments: Floats, damping: float) -> Floats | None:
        """Return a factor; the threads that wait for it help."""
        return factor_of(moments, damping, limited_blocks())

    def _mean(self, matrix: int, parts: tuple[int, ...]) -> Floats:
        """Return the mean moments of one matrix."""
        if self.moments.matrices == 1:
            return self.moments.mean(matrix, parts)
        pooled = functools.partial(self.moments.pooled, parts)
        return self.moments.mean(matrix, parts, self.memory.pooled.get((self.name, parts), pooled))

    def _rows(self, start: int, stop: int) -> Floats:
        packed = np.ascontiguousarray(self.plain.origin.read(start, stop))
        found: Floats = codec.dequantize(packed, self.plain.tensor.type, threads=1)
        return np.asarray(found, np.float32).reshape(stop - start, -1)

    def _errors(self, rows: Floats, packed: Bytes, moments: Floats) -> Floats:
        return moment_errors(rows - codec.decode_rows(packed, self.plain.type), moments)


class _FeedbackChoice(NamedTuple):
    """How errors of one matrix are fed back, and what they are measured by."""

    feedback: Feedback
    held_out: Floats


class FeedbackOutcome(NamedTuple):
    """The errors of a sample of rows on inputs held out: plain, and fed back with a damping.

    `error` is None if the moments are not positive, whatever the damping.
    """

    plain: float
    error: float | None
    damping: float

    @property
    def helps(self) -> bool:
        """Whether errors are fed back."""
        return self.error is not None and self.error < self.plain


def hessian_of(options: Mapping[str, Any]) -> Hessian | None:
    """Return the Hessian that options of `quantize` give, None without one."""
    given, include, exclude = (options.get(key) for key in _OPTIONS)
    if given is None:
        return None
    found = given if isinstance(given, Hessian) else Hessian.open(given)
    return replace(found, include=tuple(include or ()), exclude=tuple(exclude or ()))


def fed_back(pairs: Sequence[tuple[str, Tensor]], hessian: Hessian) -> dict[str, Tensor]:
    """Return tensors that will be quantized, with errors fed back where the Hessian covers them.

    `pairs` have the name in the Hessian's model and the tensor. Raises what `Hessian.require` does
    for tensors of layers.
    """
    sources = {name: made.source for name, made in pairs if isinstance(made.source, Retyped)}
    layers = (name for name in sources if layer_of(name) is not None)
    hessian.require((name, sources[name].tensor) for name in layers)
    memory = FeedbackMemory(hessian.outcomes)
    found = {}
    for name, made in pairs:
        moments = hessian.moments(name)
        if moments is not None and name in sources:
            source = FedBack(sources[name], moments, memory)
            found[made.name] = Tensor.over(made.name, made.type, made.shape, source)
    return found


def outcomes_of(tensor: Tensor) -> list[FeedbackOutcome]:
    """Return what feedback did for a tensor that was written here: one for each matrix."""
    return tensor.source.outcomes if isinstance(tensor.source, FedBack) else []
