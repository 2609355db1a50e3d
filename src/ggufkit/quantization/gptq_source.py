"""Quantize tensors with a Hessian: feed errors back where that helps on inputs held out.

The moments to quantize with decide how errors are fed back. The held-out moments measure the errors
of a sample of rows, with feedback and without; if feedback does not reduce them, it is not used.
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

import numpy as np

from ggufkit.imatrix.hessian import Hessian, Moments
from ggufkit.imatrix.hessian_file import blocks_of
from ggufkit.imatrix.moments import FITTED, HELD_OUT
from ggufkit.models.byte_ranges import decoded_rows
from ggufkit.models.layers import layer_of
from ggufkit.models.model import Tensor
from ggufkit.models.rows import ComputedRows
from ggufkit.models.sources import QuantizedSource
from ggufkit.quants import codec
from ggufkit.quants.blas import blas_limited, limited_blocks
from ggufkit.quants.gptq import (
    Gptq,
    cut_columns,
    encode_blocks,
    factor_of,
    moment_errors,
    unit_of,
)
from ggufkit.quants.parallel import Floats
from ggufkit.system.mapped_file import Bytes

SAMPLE: Final = 64  # rows of a tile that are measured
TILE: Final = 1 << 22  # elements that are quantized together
LEAST_ROWS: Final = 64  # of them: fewer would waste the time that reading moments takes


class SharedResults:
    """What the tensors of one quantization share: outcomes, and the latest results.

    It is pickled empty: other processes do their own work.
    """

    def __init__(self) -> None:
        """Start with nothing."""
        self.outcomes: dict[tuple[str, int, int], GptqOutcome] = {}
        self.pooled: ResultCache[Floats] = ResultCache(2)
        self.feedbacks: ResultCache[_Feedback] = ResultCache(2)
        self.tiles: ResultCache[Bytes] = ResultCache(16)
        self.factoring: threading.Lock = threading.Lock()

    def __reduce__(self) -> tuple[type[SharedResults], tuple[()]]:
        return SharedResults, ()


@dataclass(frozen=True, eq=False)
class GptqSource(ComputedRows):
    """A tensor quantized with errors fed back; `plain` is the same without."""

    plain: QuantizedSource
    moments: Moments
    shared: SharedResults

    def read(self, start: int, stop: int) -> Bytes:
        """Quantize rows `start` to `stop`: tiles of rows, always the same ones."""
        pieces: list[Bytes] = []
        row_number = start
        while row_number < stop:
            matrix, row = divmod(row_number, self._height)
            number, skipped = divmod(row, self._step)
            with blas_limited(1):  # there is a thread for each core already
                tile = self.shared.tiles.get(
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
        """What feedback did for each tile of rows that was written in this process."""
        tiles = range(-(-self._height // self._step))
        keys = ((self.name, m, number) for m in range(self.moments.matrices) for number in tiles)
        return [self.shared.outcomes[key] for key in keys if key in self.shared.outcomes]

    @property
    def _height(self) -> int:
        return self.plain.tensor.rows // self.moments.matrices

    @property
    def _step(self) -> int:
        return max(TILE // self.moments.width, LEAST_ROWS)

    def _tile(self, matrix: int, number: int) -> Bytes:
        """Return a tile, with errors fed back if that helps a sample of its rows."""
        first = matrix * self._height + number * self._step
        stop = min(first + self._step, (matrix + 1) * self._height)
        rows = decoded_rows(self.plain.tensor, first, stop)
        gptqs, held_out = self.shared.feedbacks.get(
            (self._inputs, matrix, unit_of(self.plain.type)),
            functools.partial(self._feedback, matrix),
        )
        sample = np.unique(np.linspace(0, len(rows) - 1, SAMPLE).astype(int))
        chosen = np.ascontiguousarray(rows[sample])
        samples, packed = [self.plain.encode(chosen, first)], None
        if gptqs:
            packed = encode_blocks(gptqs, rows, self.plain.type, search=self.plain.search)
            samples.append(packed[sample])
        lost = np.concatenate([chosen - codec.decode_rows(s, self.plain.type) for s in samples])
        parts = cut_columns(lost, [len(moments) for moments in held_out])
        errors = np.sum(list(map(moment_errors, parts, held_out)), axis=0)
        outcome = GptqOutcome(*errors.reshape(len(samples), -1).sum(axis=1).tolist())
        self.shared.outcomes[self.name, matrix, number] = outcome
        if packed is None or not outcome.helps:
            return self.plain.encode(rows, first)
        return packed

    @property
    def _inputs(self) -> str:
        """What matrices with the same inputs share."""
        return self.moments.sums.name

    def _feedback(self, matrix: int) -> _Feedback:
        """Return how errors of a matrix are fed back: one at a time, this takes much memory."""
        with self.shared.factoring:
            blocks = blocks_of(self._mean(matrix, FITTED))
            gptqs = [gptq for gptq in map(self._gptq, blocks) if gptq]
            is_whole = len(gptqs) == len(blocks)
            return _Feedback(gptqs if is_whole else [], blocks_of(self._mean(matrix, HELD_OUT)))

    def _gptq(self, moments: Floats) -> Gptq | None:
        factor = factor_of(moments, threads=limited_blocks())
        return None if factor is None else Gptq.of(factor, self.plain.type)

    def _mean(self, matrix: int, part: int) -> Floats:
        if self.moments.matrices == 1:
            return self.moments.mean(matrix, part)
        pooled = functools.partial(self.moments.pooled, part)
        mean_of_all = self.shared.pooled.get((self._inputs, part), pooled)
        return self.moments.mean(matrix, part, mean_of_all)


class _Feedback(NamedTuple):
    """The feedback of each block of a matrix, none if moments are not positive; and what judges it.

    `held_out` are the held-out moments of the blocks.
    """

    gptqs: list[Gptq]
    held_out: list[Floats]


class GptqOutcome(NamedTuple):
    """The errors of a sample of rows on inputs held out: plain, and fed back.

    `error` is None if the moments are not positive.
    """

    plain: float
    error: float | None = None

    @property
    def helps(self) -> bool:
        """Whether errors are fed back."""
        return self.error is not None and self.error < self.plain


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
    shared = SharedResults()
    tensors = {}
    for name, after in pairs:
        moments = hessian.moments(name)
        if moments is not None and name in sources and after.type.program is None:
            source = GptqSource(sources[name], moments, shared)
            tensors[after.name] = Tensor.over(after.name, after.type, after.shape, source)
    return tensors


def outcomes_of(tensor: Tensor) -> list[GptqOutcome]:
    """Return what feedback did for a tensor that was written here: one for each matrix."""
    return tensor.source.outcomes if isinstance(tensor.source, GptqSource) else []


def has_few_tokens(tensor: Tensor) -> bool:
    """Whether the moments of a tensor come from fewer tokens than a block has columns."""
    source = tensor.source
    return isinstance(source, GptqSource) and source.moments.has_few_tokens


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


class ResultCache(Generic[T]):
    """The last `size` results, by keys; each is made once, and other threads wait for it."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._lock = threading.Lock()
        # Each result once it is there, and a lock that its thread holds until then.
        self._results: OrderedDict[Hashable, tuple[threading.Lock, list[T]]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the result of a key; make it if it is not there."""
        with self._lock:
            lock, results = self._results.setdefault(key, (threading.Lock(), []))
            self._results.move_to_end(key)
            if len(self._results) > self._size:
                self._results.popitem(last=False)
        with lock:
            if not results:
                results.append(make())
            return results[0]
