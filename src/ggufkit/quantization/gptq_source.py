"""Quantize tensors with a Hessian: feed errors back where that helps on inputs held out.

How much the moments are damped is chosen for each matrix on a sample of its rows: errors are fed
back by the moments to quantize with, and measured by those held out. Then all moments are used.
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, NamedTuple, TypeVar

import numpy as np

from ggufkit.imatrix.hessian import ALL, FITTED, HELD_OUT, Hessian, Moments, Outcomes
from ggufkit.models.byte_ranges import decoded_rows
from ggufkit.models.layers import layer_of
from ggufkit.models.model import Tensor
from ggufkit.models.rows import ComputedRows
from ggufkit.models.sources import QuantizedSource
from ggufkit.quants import codec
from ggufkit.quants.blas import blas_limited, limited_blocks
from ggufkit.quants.gptq import Gptq, factor_of, moment_errors
from ggufkit.quants.parallel import Floats
from ggufkit.system.mapped_file import Bytes

DAMPINGS: Final = (0.01, 0.1, 1.0)  # as shares of the mean diagonal
SAMPLE: Final = 128  # rows that choose among them
TILE: Final = 1 << 22  # elements that are quantized together
_OPTIONS: Final = ("hessian", "include_weights", "exclude_weights")
LEAST_ROWS: Final = 64  # of them: fewer would waste the time that reading moments takes


class GptqMemory:
    """What the tensors of one quantization share: outcomes, and the last parts of the work.

    It is pickled empty: other processes do their own work.
    """

    def __init__(self, outcomes: Outcomes | None = None) -> None:
        """Start with nothing, or with outcomes that quantizations of one model share."""
        self.outcomes: Outcomes = {} if outcomes is None else outcomes
        self.pooled: ResultCache[Floats] = ResultCache(3)
        self.choices: ResultCache[_GptqChoice | None] = ResultCache(2)
        self.tiles: ResultCache[Bytes] = ResultCache(16)
        self.choosing: threading.Lock = threading.Lock()

    def __reduce__(self) -> tuple[type[GptqMemory], tuple[()]]:
        return GptqMemory, ()


@dataclass(frozen=True, eq=False)
class GptqSource(ComputedRows):
    """A tensor quantized with errors fed back; `plain` is the same without."""

    plain: QuantizedSource
    moments: Moments
    memory: GptqMemory

    def read(self, start: int, stop: int) -> Bytes:
        """Quantize rows `start` to `stop`: tiles of rows, always the same ones."""
        pieces: list[Bytes] = []
        row_number = start
        while row_number < stop:
            matrix, row = divmod(row_number, self._height)
            number, skipped = divmod(row, self._step)
            with blas_limited(1):  # there is a thread for each core already
                tile = self.memory.tiles.get(
                    (self.name, matrix, number), functools.partial(self._tile, matrix, number)
                )
            pieces.append(tile[skipped : skipped + stop - row_number])
            row_number += len(pieces[-1])
        return np.concatenate(pieces) if pieces else self.plain.read(start, stop)

    @property
    def name(self) -> str:
        """The name of the tensor."""
        return self.plain.tensor.name

    @property
    def outcomes(self) -> list[GptqOutcome]:
        """What feedback did for each matrix that was written in this process."""
        outcomes = (self.memory.outcomes.get(self._key(n)) for n in range(self.moments.matrices))
        return [GptqOutcome(*outcome) for outcome in outcomes if outcome]

    def _key(self, matrix: int) -> tuple[object, ...]:
        return self.name, self.plain.type.name, self.plain.search, matrix

    @property
    def _height(self) -> int:
        return self.plain.tensor.rows // self.moments.matrices

    @property
    def _step(self) -> int:
        return max(TILE // self.moments.width, LEAST_ROWS)

    def _tile(self, matrix: int, number: int) -> Bytes:
        """Return a tile: rows whose errors grow by feedback are as without it."""
        first = matrix * self._height + number * self._step
        stop = min(first + self._step, (matrix + 1) * self._height)
        rows = decoded_rows(self.plain.tensor, first, stop)
        plain = self.plain.encode(rows, first)
        chosen = self.memory.choices.get(
            (self.name, matrix), functools.partial(self._choice, matrix)
        )
        if chosen is None:
            return plain
        corrected = chosen.feedback.encode(rows, self.plain.type, search=self.plain.search)
        before, after = (
            self._errors(rows, packed, chosen.held_out) for packed in (plain, corrected)
        )
        return np.where((after < before)[:, None], corrected, plain)

    def _choice(self, matrix: int) -> _GptqChoice | None:
        """Return how errors of a matrix are fed back, None if they are not.

        One matrix at a time: this takes much memory.
        """
        with self.memory.choosing:
            held_out = self._mean(matrix, HELD_OUT)
            cached = self.memory.outcomes.get(self._key(matrix))
            outcome = GptqOutcome(*cached) if cached else self._outcome(matrix, held_out)
            self.memory.outcomes[self._key(matrix)] = outcome
            mean = self._mean(matrix, ALL) if outcome.helps else None
            factor = None if mean is None else self._factor(mean, outcome.damping)
        if factor is None:
            return None
        return _GptqChoice(Gptq.of(factor, self.plain.type), held_out)

    def _outcome(self, matrix: int, held_out: Floats) -> GptqOutcome:
        first = matrix * self._height
        places = np.unique(np.linspace(0, self._height - 1, SAMPLE).astype(int))
        sample = np.concatenate(
            [
                decoded_rows(self.plain.tensor, first + row, first + row + 1)
                for row in places.tolist()
            ]
        )
        fitted = self._mean(matrix, FITTED)
        plain = self._errors(sample, self.plain.encode(sample, first), held_out).sum()
        errors: dict[float, float] = {}
        for damping in DAMPINGS:
            factor = self._factor(fitted, damping)
            if factor is not None:
                feedback = Gptq.of(factor, self.plain.type)
                corrected = feedback.encode(sample, self.plain.type, search=self.plain.search)
                errors[damping] = float(self._errors(sample, corrected, held_out).sum())
        best = min(errors, key=errors.__getitem__, default=0.0)
        return GptqOutcome(float(plain), errors.get(best), best)

    def _factor(self, moments: Floats, damping: float) -> Floats | None:
        return factor_of(moments, damping, limited_blocks())

    def _mean(self, matrix: int, parts: tuple[int, ...]) -> Floats:
        if self.moments.matrices == 1:
            return self.moments.mean(matrix, parts)
        pooled = functools.partial(self.moments.pooled, parts)
        return self.moments.mean(matrix, parts, self.memory.pooled.get((self.name, parts), pooled))

    def _errors(self, rows: Floats, packed: Bytes, moments: Floats) -> Floats:
        return moment_errors(rows - codec.decode_rows(packed, self.plain.type), moments)


class _GptqChoice(NamedTuple):
    """How errors of one matrix are fed back, and what they are measured by."""

    feedback: Gptq
    held_out: Floats


class GptqOutcome(NamedTuple):
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
    hessian, include, exclude = (options.get(key) for key in _OPTIONS)
    if hessian is None:
        return None
    opened = hessian if isinstance(hessian, Hessian) else Hessian.open(hessian)
    return replace(opened, include=tuple(include or ()), exclude=tuple(exclude or ()))


def gptq_tensors(pairs: Sequence[tuple[str, Tensor]], hessian: Hessian) -> dict[str, Tensor]:
    """Return tensors that will be quantized, with errors fed back where the Hessian covers them.

    `pairs` have the name in the Hessian's model and the tensor. Raises what `Hessian.require` does
    for tensors of layers.
    """
    sources = {
        name: after.source for name, after in pairs if isinstance(after.source, QuantizedSource)
    }
    layers = (name for name in sources if layer_of(name) is not None)
    hessian.require((name, sources[name].tensor) for name in layers)
    memory = GptqMemory(hessian.outcomes)
    tensors = {}
    for name, after in pairs:
        moments = hessian.moments(name)
        if moments is not None and name in sources:
            source = GptqSource(sources[name], moments, memory)
            tensors[after.name] = Tensor.over(after.name, after.type, after.shape, source)
    return tensors


def outcomes_of(tensor: Tensor) -> list[GptqOutcome]:
    """Return what feedback did for a tensor that was written here: one for each matrix."""
    return tensor.source.outcomes if isinstance(tensor.source, GptqSource) else []


def outcome_text(tensor: Tensor) -> str:
    """Return what became of a tensor's feedback, empty if it has none."""
    if not isinstance(tensor.source, GptqSource):
        return ""
    outcomes = outcomes_of(tensor)
    if not outcomes:
        return "errors fed back"
    if not any(outcome.helps for outcome in outcomes):
        return f"errors not fed back: {why_not_fed_back(outcomes)}"
    plain = sum(tensor.plain for tensor in outcomes)
    corrected = sum(
        tensor.error if tensor.helps and tensor.error else tensor.plain for tensor in outcomes
    )
    return f"errors fed back: {corrected / plain - 1:+.0%} on inputs held out"


def why_not_fed_back(outcomes: list[GptqOutcome]) -> str:
    """Return why errors were not fed back."""
    if all(outcome.error is None for outcome in outcomes):
        return "the Hessian is not positive"
    return "it does not help on inputs held out"


T = TypeVar("T")


@dataclass
class _SharedResult(Generic[T]):
    """A result that threads wait for: one computes it, and holds the lock meanwhile."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    values: list[T] = field(default_factory=list)


class ResultCache(Generic[T]):
    """The last `size` results, by keys; each is made once, and other threads wait for it."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._results: OrderedDict[Hashable, _SharedResult[T]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the result of a key; make it if it is not there."""
        with self._lock:
            result = self._results.setdefault(key, _SharedResult())
            self._results.move_to_end(key)
            if len(self._results) > self._size:
                self._results.popitem(last=False)
        with result.lock:
            if not result.values:
                result.values.append(make())
            return result.values[0]
