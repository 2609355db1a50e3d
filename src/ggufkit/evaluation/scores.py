"""The figures that a pass over a text records at each position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

ScoreValues = npt.NDArray[np.float64]
FIELDS: Final = ("surprise", "base_surprise", "divergence", "probability_change", "same_top")


def counted(context: int) -> int:
    """Return the positions of a chunk that count: in its second half, with a next token."""
    return context - 1 - context // 2


@dataclass(frozen=True)
class Scores:
    """The figures at each counted position: (chunks, positions, fields).

    Without a base, all fields but the first are zero.
    """

    values: ScoreValues

    @staticmethod
    def empty(chunks: int, context: int) -> Scores:
        """Return scores to be filled for each position of a text."""
        return Scores(np.full((chunks, counted(context), len(FIELDS)), np.nan))

    def field(self, name: str) -> ScoreValues:
        """Return one field: (chunks, positions)."""
        result: ScoreValues = self.values[..., FIELDS.index(name)]
        return result
