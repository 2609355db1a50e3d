"""Divide a list of cases: some for `make test-matrix`, all others for `make test-exhaustive`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest


def divided(cases: Iterable[Sequence[Any]], is_chosen: Callable[[int], bool]) -> list[Any]:
    """Return all cases as parameters; those whose number is chosen are for the matrix."""
    marks = {True: pytest.mark.matrix, False: pytest.mark.exhaustive}
    return [pytest.param(*case, marks=marks[is_chosen(i)]) for i, case in enumerate(cases)]
