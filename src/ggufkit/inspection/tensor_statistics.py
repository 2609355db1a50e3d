"""Statistics of one tensor: range, mean, norm, zeros, and histograms of values and of blocks."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ggufkit.errors import ValueTypeError
from ggufkit.models.byte_ranges import Tally, decoded, little_endian_bytes, reading_threads
from ggufkit.models.model import Tensor
from ggufkit.models.sources import separable
from ggufkit.models.tensors.tensor import require_decodable
from ggufkit.quants.block_parts import block_parts
from ggufkit.quants.parallel import Doubles
from ggufkit.system.mapped_file import Bytes
from ggufkit.system.threads import Progress, in_turn, pool_of
from ggufkit.validation.plain_values import plain_values

BinCounts = npt.NDArray[np.int64]

_FINE: Final = 4096  # bins while numbers are counted
_HALF: Final = _FINE // 2
_SHIFTS: Final = _HALF.bit_length() - 1  # doublings after which a number shows only its sign
_LEAST: Final = _SHIFTS - 1074  # a fine bin is at least as wide as the smallest double
_LARGEST: Final = float(np.finfo(np.float64).max)


@dataclass(frozen=True)
class Histogram:
    """How many numbers are from each of `edges` up to the next one: one count less than edges.

    If all numbers are zero, both edges are zero. Numbers that are not finite are not counted.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return edges and counts as lists."""
        return {"edges": list(self.edges), "counts": list(self.counts)}


@dataclass(frozen=True)
class FineBins:
    """Counts in fine bins between plus and minus 2 to the power of `exponent`.

    The bins have a power of two as width, and zero is between two of them. A larger number doubles
    the width: neighbouring bins are added, so nothing is counted twice or rounded. So the order in
    which parts of the numbers come does not matter.
    """

    exponent: int
    counts: BinCounts

    @classmethod
    def of(cls, numbers: Doubles) -> FineBins:
        """Count finite numbers."""
        largest = float(np.abs(numbers).max(initial=0.0))
        exponent = max(int(np.frexp(largest)[1]), _LEAST) if largest else _LEAST
        places = np.floor(np.ldexp(numbers, _SHIFTS - exponent)).astype(np.int64)
        places -= (numbers < 0) & (places == 0)  # a number so small that it became zero
        return cls(exponent, np.bincount(places + _HALF, minlength=_FINE))

    def __add__(self, other: FineBins) -> FineBins:
        """Return the counts of both."""
        exponent = max(self.exponent, other.exponent)
        return FineBins(exponent, self._widened(exponent) + other._widened(exponent))

    def _widened(self, exponent: int) -> BinCounts:
        shift = min(exponent - self.exponent, _SHIFTS)
        if shift == 0:
            return self.counts
        width = 1 << shift
        middle = self.counts.reshape(-1, width).sum(axis=1)
        wide = np.zeros(_FINE, np.int64)
        start = _HALF - len(middle) // 2
        wide[start : start + len(middle)] = middle
        return wide

    def histogram(self, bins: int) -> Histogram:
        """Return a histogram with at most `bins` bins (two or more), from the least number up."""
        used = np.flatnonzero(self.counts)
        if not used.size:
            return Histogram((), ())
        first, last = int(used[0]), int(used[-1])
        if self.exponent == _LEAST and first == last == _HALF:
            return Histogram((0.0, 0.0), (int(self.counts[_HALF]),))
        width = 1
        while last // width - first // width >= bins:
            width *= 2
        first, last = first // width, last // width
        counts = self.counts.reshape(-1, width).sum(axis=1)[first : last + 1]
        places = np.arange(first, last + 2) * width - _HALF
        with np.errstate(over="ignore"):  # the edge beyond the largest double is infinite
            edges = np.ldexp(places.astype(np.float64), self.exponent - _SHIFTS)
        edges = np.clip(edges, -_LARGEST, _LARGEST)
        return Histogram(tuple(edges.tolist()), tuple(counts.tolist()))


NO_BINS: Final = FineBins(_LEAST, np.zeros(_FINE, np.int64))


TILE_ELEMENTS: Final = 1 << 18  # decoded per task; a multiple of every type's block
DEFAULT_BINS: Final = 64
_LEVELS: Final = 256  # of every quantized type at most: from -128 to 127
_MIDDLE: Final = 128


@dataclass(frozen=True)
class TensorStatistics:
    """Statistics of a tensor's elements; NaN and infinities are counted and enter nothing else.

    `min`, `max`, `mean` and `std` (the standard deviation) are None if no element is finite.
    `norm` is the square root of the sum of squares. For a quantized type, `scales` is the histogram
    of the scales of all groups, ready to use, and `levels` says how often each level occurs;
    otherwise both are None.
    """

    elements: int
    nan: int
    infinite: int
    zeros: int
    min: float | None
    max: float | None
    mean: float | None
    std: float | None
    norm: float
    histogram: Histogram
    scales: Histogram | None = None
    levels: dict[int, int] | None = None

    @property
    def zero_share(self) -> float:
        """The share of elements that are zero, from 0 to 1."""
        return self.zeros / self.elements if self.elements else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return all figures in a form that JSON has: one that is not finite becomes None."""
        facts: dict[str, Any] = plain_values(self)
        return facts | {"zero_share": self.zero_share}


def tensor_statistics(
    tensor: Tensor,
    *,
    bins: int = DEFAULT_BINS,
    threads: int | None = None,
    progress: Progress | None = None,
) -> TensorStatistics:
    """Return statistics of a tensor, read once, tile by tile, with a few MiB for each thread.

    A histogram has at most `bins` bins, with a power of two as width. The result does not depend on
    `threads`. `progress(done, total)` counts bytes. Raises TensorTypeError for an opaque type.
    """
    require_decodable(tensor)
    tensor = separable(tensor)
    if bins < 2:  # noqa: PLR2004 (negative numbers and others)
        raise ValueTypeError(f"{bins} bins are too few", remedy="Use two or more")
    span = tensor.source.span
    workers = reading_threads([span.file] if span else [], threads)
    tally = Tally(progress)
    tally.expect(tensor.nbytes)
    total = _NOTHING
    with pool_of(workers) as pool:
        for part in in_turn(pool, _tasks(tensor), 2 * workers):
            total = total.plus(part)
            tally.add(tensor.type.row_bytes(part.elements))
    return total.statistics(bins, has_blocks=tensor.type.is_quantized and tensor.elements > 0)


def _tasks(tensor: Tensor) -> Iterator[Callable[[], _Sums]]:
    for start in range(0, tensor.elements, TILE_ELEMENTS):
        yield functools.partial(_summed, tensor, start)


def _summed(tensor: Tensor, start: int) -> _Sums:
    kind = tensor.type
    stop = min(start + TILE_ELEMENTS, tensor.elements)
    data = little_endian_bytes(tensor, kind.row_bytes(start), kind.row_bytes(stop))
    values = decoded(data, kind)
    finite = values[np.isfinite(values)]
    nan = int(np.count_nonzero(np.isnan(values)))
    with np.errstate(over="ignore"):  # the squares of huge doubles are infinite
        total, squares = float(finite.sum()), float(np.square(finite).sum())
    scales, levels = _block_counts(data, tensor) if kind.is_quantized else (NO_BINS, _NO_LEVELS)
    return _Sums(
        elements=values.size,
        nan=nan,
        infinite=values.size - finite.size - nan,
        zeros=values.size - int(np.count_nonzero(values)),
        min=float(finite.min(initial=math.inf)),
        max=float(finite.max(initial=-math.inf)),
        sum=total,
        squares=squares,
        bins=FineBins.of(finite),
        scales=scales,
        levels=levels,
    )


def _block_counts(data: Bytes, tensor: Tensor) -> tuple[FineBins, npt.NDArray[np.int64]]:
    """Count the scales and the levels in blocks."""
    with np.errstate(all="ignore"):  # scales in broken blocks may be infinite or not a number
        parts = block_parts(data, tensor.type)
        scales = parts.scales.astype(np.float64).reshape(-1)
    levels = parts.levels.reshape(-1).astype(np.int64) + _MIDDLE
    bins = FineBins.of(scales[np.isfinite(scales)])
    return bins, np.bincount(levels, minlength=_LEVELS)


class _Sums(NamedTuple):
    """Counts and sums over some elements; for types without blocks, no scales and levels."""

    elements: int
    nan: int
    infinite: int
    zeros: int
    min: float
    max: float
    sum: float
    squares: float
    bins: FineBins
    scales: FineBins
    levels: npt.NDArray[np.int64]

    def plus(self, other: _Sums) -> _Sums:
        """Return the sums of both."""
        total = _Sums(*map(operator.add, self, other))
        return total._replace(min=min(self.min, other.min), max=max(self.max, other.max))

    def statistics(self, bins: int, *, has_blocks: bool) -> TensorStatistics:
        """Return the statistics of all."""
        finite = self.elements - self.nan - self.infinite
        mean = self.sum / finite if finite else None
        spread = self.squares / finite - mean * mean if mean is not None else None
        return TensorStatistics(
            elements=self.elements,
            nan=self.nan,
            infinite=self.infinite,
            zeros=self.zeros,
            min=self.min if finite else None,
            max=self.max if finite else None,
            mean=mean,
            std=None if spread is None else math.sqrt(max(spread, 0.0)),
            norm=math.sqrt(self.squares),
            histogram=self.bins.histogram(bins),
            scales=self.scales.histogram(bins) if has_blocks else None,
            levels=_counted(self.levels) if has_blocks else None,
        )


_NO_LEVELS: Final = np.zeros(_LEVELS, np.int64)
_NOTHING: Final = _Sums(0, 0, 0, 0, math.inf, -math.inf, 0.0, 0.0, NO_BINS, NO_BINS, _NO_LEVELS)


def _counted(levels: npt.NDArray[np.int64]) -> dict[int, int]:
    """Return how often each level occurs, the lowest first."""
    return {int(place) - _MIDDLE: int(levels[place]) for place in np.flatnonzero(levels)}
