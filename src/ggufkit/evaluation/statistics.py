"""Means with their errors, percentiles and ratios, as llama-perplexity computes them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ggufkit.evaluation.scores import Scores, ScoreValues
from ggufkit.quants.parallel import Floats

FEW: Final = 10  # values: llama-perplexity gives no error of fewer
PERCENTILES: Final = (99.9, 99.0, 95.0, 90.0, 75.0, 50.0, 25.0, 10.0, 5.0, 1.0, 0.1)


@dataclass(frozen=True)
class Measurement:
    """A figure and its standard error; the error is NaN where it cannot be computed."""

    value: float
    error: float


@dataclass(frozen=True)
class Distribution:
    """How a figure is distributed over the positions of a text."""

    mean: Measurement
    minimum: float
    maximum: float
    percentiles: dict[float, float]

    @property
    def median(self) -> float:
        """The value in the middle."""
        return self.percentiles[50.0]


@dataclass(frozen=True)
class Divergence:
    """How far a model is from its base.

    `kld` is the Kullback-Leibler divergence at a position. `probability_change` is the difference
    of the probabilities that both give to the text's token, and `rms_probability_change` the root
    of its mean square. `same_top` is the share of positions where both rank the same token first.
    """

    base_perplexity: Measurement
    correlation: float
    log_ratio: Measurement
    ratio: Measurement
    difference: Measurement
    kld: Distribution
    probability_change: Distribution
    rms_probability_change: Measurement
    same_top: Measurement


def perplexity(scores: Scores) -> Measurement:
    """Return the perplexity of a pass without a base."""
    values = scores.field("surprise")
    mean = float(values.mean())
    variance = float((values**2).mean()) - mean**2
    return _exponential(Measurement(mean, _root(variance / (values.size - 1))))


def perplexity_with_base(scores: Scores) -> Measurement:
    """Return the perplexity of a pass with a base, which llama-perplexity rounds differently."""
    return _exponential(_mean_in_single(scores.field("surprise")))


def divergence(scores: Scores) -> Divergence:
    """Return how far a pass with a base is from the base."""
    mine = _mean_in_single(scores.field("surprise"))
    theirs = _mean_in_single(scores.field("base_surprise"))
    covariance = _covariance(scores)
    log_ratio = Measurement(
        mine.value - theirs.value,
        _root(mine.error**2 + theirs.error**2 - 2 * covariance),
    )
    ours, base = _exponential(mine), _exponential(theirs)
    shared = ours.value * base.value * covariance
    kld, change = scores.field("divergence"), scores.field("probability_change")
    squares = _square_in_single(change)
    mean = _mean(squares, squares**2)
    root = math.sqrt(mean.value)
    flags = scores.field("same_top")
    share = float(flags.mean())
    below = max(flags.size - 1, 1)
    return Divergence(
        base_perplexity=base,
        correlation=_quotient(covariance, mine.error * theirs.error),
        log_ratio=log_ratio,
        ratio=_exponential(log_ratio),
        difference=Measurement(
            ours.value - base.value, _root(ours.error**2 + base.error**2 - 2 * shared)
        ),
        kld=_distribution(kld, _mean(kld, kld**2)),
        probability_change=_distribution(change, _mean(change, _square_in_single(change))),
        rms_probability_change=Measurement(root, _quotient(0.5, root) * mean.error),
        same_top=Measurement(share, math.sqrt(share * (1 - share) / below)),
    )


def _mean(values: ScoreValues, squares: ScoreValues) -> Measurement:
    mean = float(values.sum() / values.size)
    variance = float(squares.sum() / values.size) - mean * mean
    is_measurable = variance > 0 and values.size > FEW
    return Measurement(mean, math.sqrt(variance / (values.size - 1)) if is_measurable else 0.0)


def _mean_in_single(values: ScoreValues) -> Measurement:
    return _mean(values, _square_in_single(values))


def _square_in_single(values: ScoreValues) -> ScoreValues:
    """Return the squares, rounded to single precision as in llama-perplexity."""
    narrow = values.astype(np.float32)
    result: ScoreValues = (narrow * narrow).astype(np.float64)
    return result


def _covariance(scores: Scores) -> float:
    mine = scores.field("surprise").astype(np.float32)
    theirs = scores.field("base_surprise").astype(np.float32)
    count = mine.size
    if count < FEW:
        return 0.0
    both = (mine * theirs).sum(dtype=np.float64) / count
    means = mine.sum(dtype=np.float64) / count * (theirs.sum(dtype=np.float64) / count)
    return float((both - means) / (count - 1))


def _exponential(log: Measurement) -> Measurement:
    value = math.exp(log.value) if log.value < math.log(np.finfo(np.float64).max) else math.inf
    return Measurement(value, value * log.error)


def _root(variance: float) -> float:
    return math.sqrt(variance) if variance >= 0 else math.nan


def _quotient(above: float, below: float) -> float:
    return above / below if below else math.nan


def _distribution(values: ScoreValues, mean: Measurement) -> Distribution:
    ordered = np.sort(values.astype(np.float32).reshape(-1))
    return Distribution(
        mean,
        float(ordered[0]),
        float(ordered[-1]),
        {percent: _percentile(ordered, percent) for percent in PERCENTILES},
    )


def _percentile(ordered: Floats, percent: float) -> float:
    """Interpolate in single precision, as llama-perplexity does."""
    place = np.float32(percent / 100) * np.float32(len(ordered) - 1)
    below = int(place)
    rest = place - np.float32(below)
    above = ordered[min(below + 1, len(ordered) - 1)]
    return float((np.float32(1) - rest) * ordered[below] + rest * above)


CONFIDENCE: Final = 0.95  # probability that all intervals of one run are right
LEAST_CHUNKS: Final = 3  # two differences say nothing about their spread
_HALVINGS: Final = 200  # at most, in the search for a quantile; 60 are usual


def ranked_groups(
    ranking: Sequence[str], compared: Iterable[Comparison]
) -> tuple[tuple[str, ...], ...]:
    """Return groups of a ranking, best first, whose models are not shown to differ.

    A model is in two groups if it differs from no model of either, while they differ.
    """
    separated = {frozenset((pair.first, pair.second)) for pair in compared if pair.better}
    groups: list[tuple[str, ...]] = []
    for start in range(len(ranking)):
        stop = start + 1
        while stop < len(ranking) and not any(
            frozenset((name, ranking[stop])) in separated for name in ranking[start:stop]
        ):
            stop += 1
        if not groups or groups[-1][-1] != ranking[stop - 1]:  # else a part of the group before
            groups.append(tuple(ranking[start:stop]))
    return tuple(groups)


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
    """Compare each pair of models; with probability `CONFIDENCE` all intervals are right.

    Figures at neighbouring positions depend on each other, so the means of chunks are the sample.
    All models read the same chunks: the differences vary less than the figures do.
    """
    pairs = list(itertools.combinations(scores, 2))
    measure, field = ("kld", "divergence") if with_base else ("log_perplexity", "surprise")
    results = []
    for first, second in pairs:
        gap = scores[first].field(field) - scores[second].field(field)
        middle, reach = interval(gap.mean(axis=1), 1 - (1 - CONFIDENCE) / len(pairs))
        low, high = middle - reach, middle + reach
        better = first if high < 0 else second if low > 0 else None
        results.append(Comparison(first, second, measure, middle, low, high, better))
    return tuple(results)


def interval(differences: ScoreValues, confidence: float) -> tuple[float, float]:
    """Return the mean of a sample and half the width of its confidence interval."""
    middle, count = float(differences.mean()), len(differences)
    if count < LEAST_CHUNKS:
        return middle, math.inf
    error = float(differences.std(ddof=1)) / math.sqrt(count)
    return middle, error * quantile((1 + confidence) / 2, count - 1)


def quantile(probability: float, freedom: int) -> float:
    """Return the value below which Student's t lies with `probability` (at least a half)."""
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
