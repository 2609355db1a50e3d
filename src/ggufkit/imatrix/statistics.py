"""Statistics of an importance matrix, as `llama-imatrix --show-statistics` prints them.

Sums run one term after the other in float32, as llama.cpp's do, so that the figures are the same.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ggufkit.imatrix.matrix import Entry, Imatrix, merge
from ggufkit.models.layers import BLOCK
from ggufkit.quants.parallel import Floats

INACTIVE: Final = np.float32(1e-5)  # an input with a smaller mean square counts as inactive
OTHER: Final = "-"  # the layer of tensors in no block


@dataclass(frozen=True)
class Statistics:
    """Figures about the mean squared activations of one tensor's inputs.

    `active` is the share of inputs that are used at all, `entropy` in bits says how evenly,
    `evenness` the same relative to the most that is possible, `z_density` the share of inputs
    more than a standard deviation above the mean, `similarity` the cosine to the same tensor one
    layer before, 0 in the first layer.
    """

    name: str
    layer: str
    tensor: str
    elements: int
    total: float
    minimum: float
    maximum: float
    mean: float
    deviation: float
    active: float
    entropy: float
    evenness: float
    z_density: float
    similarity: float = 0.0


@dataclass(frozen=True)
class LayerStatistics:
    """Averages over the tensors of a layer, weighted by their elements."""

    layer: int
    total: float
    z_density: float
    similarity: float


def statistics(imatrix: Imatrix) -> list[Statistics]:
    """Return the figures of each tensor, by kind of tensor and then the largest activation first.

    Tensors that no token reached are left out.
    """
    raw = merge([imatrix]) if imatrix.is_legacy else imatrix
    rows = [
        replace(_about(name, means), similarity=_similarity(name, raw))
        for name, means in ((name, _means(entry)) for name, entry in raw.entries.items())
        if means.size
    ]
    return sorted(rows, key=lambda row: (row.tensor.encode(), -row.total))


def by_layer(tensors: Iterable[Statistics]) -> list[LayerStatistics]:
    """Return the averages of each layer, in order."""
    layers: dict[int, list[Statistics]] = defaultdict(list)
    for tensor in tensors:
        if tensor.layer.isdecimal():
            layers[int(tensor.layer)].append(tensor)
    rows = []
    for layer, members in sorted(layers.items()):
        elements = np.array([tensor.elements for tensor in members])
        names = ("total", "z_density", "similarity")
        table = np.array([[getattr(tensor, n) for tensor in members] for n in names], np.float32)
        sums = (_sum(elements.astype(np.float32) * values) for values in table)
        rows.append(LayerStatistics(layer, *(float(s / np.float32(elements.sum())) for s in sums)))
    return rows


def _means(entry: Entry) -> Floats:
    has_data = entry.counts > 0
    means = entry.sums[has_data] / entry.counts[has_data, np.newaxis].astype(np.float32)
    return np.asarray(means, np.float32).reshape(-1)


def _about(name: str, means: Floats) -> Statistics:
    size = np.float32(means.size)
    with np.errstate(over="ignore", invalid="ignore"):  # as in C: infinity and NaN are shown
        total = _sum(means)
        mean = total / size
        variance = _sum(means * means) / size - mean * mean
        deviation = np.sqrt(max(np.float32(0), variance))
        above = (means - mean) / deviation > 1 if deviation > 0 else np.zeros(0, bool)
    entropy = _entropy(means, total)
    most = math.log2(means.size)
    words = name.split(".")
    layers = [after for word, after in itertools.pairwise(words) if word == "blk"]
    kinds = [word for word, after in itertools.pairwise(words) if after == "weight"]
    layer, tensor = next(iter(layers), OTHER), next(iter(kinds), name)
    return Statistics(
        name,
        layer,
        tensor,
        elements=means.size,
        total=float(total),
        minimum=float(means.min()),
        maximum=float(means.max()),
        mean=float(mean),
        deviation=float(deviation),
        active=float(1 - np.float32((np.abs(means) <= INACTIVE).sum()) / size),
        entropy=entropy,
        evenness=entropy / most if most else 0.0,
        z_density=float(np.float32(above.sum()) / size),
    )


def _sum(terms: Floats) -> np.float32:
    """Add up in order; NumPy's own sum goes by pairs."""
    last: np.float32 = np.add.accumulate(terms, dtype=np.float32)[-1]
    return last


def _entropy(means: Floats, total: np.float32) -> float:
    if not total > 0:
        return 0.0
    shares = np.asarray(means / total, np.float32)
    shares = shares[shares > 0]
    return float(-_sum(np.asarray(shares * np.log2(shares), np.float32))) if shares.size else 0.0


def _similarity(name: str, imatrix: Imatrix) -> float:
    match = BLOCK.search(name)
    if not match:
        return 0.0
    before = f"{name[: match.start(1)]}{int(match[1]) - 1}{name[match.end(1) :]}"
    other = imatrix.entries.get(before)
    mine = imatrix.entries[name].sums.reshape(-1)
    if other is None or other.sums.size != mine.size:
        return 0.0
    theirs = other.sums.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.sqrt(_sum(mine * mine)) * np.sqrt(_sum(theirs * theirs))
        return float(_sum(mine * theirs) / lengths) if lengths > 0 else 0.0
