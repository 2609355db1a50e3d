"""Histograms of numbers that come in parts: one pass, and the order of the parts does not matter.

The bins have a power of two as width, and zero is between two of them. A larger number doubles
the width: neighbouring bins are added, so nothing is counted twice or rounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ggufkit.quants.parallel import Doubles

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
    """Counts in fine bins between plus and minus 2 to the power of `exponent`."""

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
