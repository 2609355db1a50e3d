"""How well a text covers a model: tokens of each expert, and how much more text would change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from ggufkit.imatrix.matrix import Entry, Imatrix
from ggufkit.models.layers import BLOCK
from ggufkit.quants.parallel import Floats

LEAST_COSINE: Final = 0.9  # with less, the data of half of the text is another one
ADVICE: Final = "Use a longer text, with more kinds of content"


@dataclass(frozen=True)
class ExpertCoverage:
    """The tokens of the least, median and most used expert of all layers.

    The matrices of an expert count once. `unreached` experts got no token; they are in `tensors`.
    """

    experts: int
    least: int
    median: float
    most: int
    unreached: int
    tensors: tuple[str, ...]


@dataclass(frozen=True)
class HalfSimilarity:
    """Cosines between the sums of half of the text and all of it; `tensor` has the least."""

    least: float
    median: float
    tensor: str


def expert_coverage(imatrix: Imatrix) -> ExpertCoverage | None:
    """Return the tokens of experts; None for a model without any, or if the file has no counts."""
    stacks = {name: e.counts for name, e in imatrix.entries.items() if len(e.counts) > 1}
    if not stacks:
        return None
    by_layer = {(_layer(name), counts.tobytes()): counts for name, counts in stacks.items()}
    tokens = np.concatenate(list(by_layer.values()))
    return ExpertCoverage(
        experts=len(tokens),
        least=int(tokens.min()),
        median=float(np.median(tokens)),
        most=int(tokens.max()),
        unreached=int((tokens == 0).sum()),
        tensors=tuple(name for name, counts in stacks.items() if not counts.all()),
    )


def _layer(name: str) -> str:
    match = BLOCK.match(name)
    return match[1] if match else name


def half_similarity(imatrix: Imatrix) -> HalfSimilarity | None:
    """Return how much the second half of the text changed; None if that is not known."""
    values = imatrix.half_cosines
    if not values:
        return None
    tensor = min(values, key=lambda name: values[name])
    return HalfSimilarity(values[tensor], float(np.median(list(values.values()))), tensor)


def cosines(half: Mapping[str, Floats], whole: Mapping[str, Entry]) -> dict[str, float]:
    """Return the cosine between two sums of each tensor, 0 where no token reached one."""
    similar = {}
    for name, sums in half.items():
        first, second = (side.ravel().astype(float) for side in (sums, whole[name].sums))
        lengths = float(np.linalg.norm(first) * np.linalg.norm(second))
        similar[name] = round(float(first @ second) / lengths, 6) if lengths else 0.0
    return similar
