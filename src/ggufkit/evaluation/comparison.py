"""Which of two models is better on a text, said only where the difference is more than chance.

Figures at neighbouring positions depend on each other, so the means of chunks are the sample. All
models read the same chunks: the differences vary less than the figures do.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ggufkit.evaluation.scores import Scores, ScoreValues

CONFIDENCE: Final = 0.95  # that all intervals of one run hold at once
LEAST_CHUNKS: Final = 3  # two differences say nothing about their spread
_HALVINGS: Final = 200  # until the search for a quantile ends, which 60 nearly do


@dataclass(frozen=True)
class Comparison:
    """The difference of two models, `first` minus `second`, with its confidence interval.

    `measure` is "kld", the mean divergence from the base, or "log_perplexity". Lower is better.
    `better` is the name of the better model, or None if the interval contains zero.
    """

    first: str
    second: str
    measure: str
    difference: float
    low: float
    high: float
    better: str | None


def comparisons(scores: Mapping[str, Scores], *, with_base: bool) -> tuple[Comparison, ...]:
    """Compare each two models; the intervals hold together with `CONFIDENCE`."""
    pairs = list(itertools.combinations(scores, 2))
    measure, field = ("kld", "divergence") if with_base else ("log_perplexity", "surprise")
    found = []
    for first, second in pairs:
        gap = scores[first].field(field) - scores[second].field(field)
        middle, reach = interval(gap.mean(axis=1), 1 - (1 - CONFIDENCE) / len(pairs))
        low, high = middle - reach, middle + reach
        better = first if high < 0 else second if low > 0 else None
        found.append(Comparison(first, second, measure, middle, low, high, better))
    return tuple(found)


def interval(differences: ScoreValues, confidence: float) -> tuple[float, float]:
    """Return the mean of a sample and half the width of its confidence interval."""
    middle, count = float(differences.mean()), len(differences)
    if count < LEAST_CHUNKS:
        return middle, math.inf
    error = float(differences.std(ddof=1)) / math.sqrt(count)
    return middle, error * quantile((1 + confidence) / 2, count - 1)


def quantile(probability: float, freedom: int) -> float:
    """Return Student's t below which a share of `probability` (at least a half) lies."""
    low, high = 0.0, 1.0
    while _below(high, freedom) < probability:
        high *= 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _below(middle, freedom) < probability else (low, middle)
    return high


def _below(t: float, freedom: int) -> float:
    """Return the share of Student's distribution below `t`: the finite series for whole freedom.

    Source: Abramowitz and Stegun, 26.7.3 and 26.7.4.
    """
    angle = math.atan(t / math.sqrt(freedom))
    cosine = math.cos(angle) ** 2
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = term if freedom > 1 else 0.0
    for k in range(2 + odd, freedom - 1, 2):
        term *= (k - 1) / k * cosine
        total += term
    inside = 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total
    return 0.5 + inside / 2
