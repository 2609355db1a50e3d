"""How sparse Gemma 3n's activations are: shares of zeros, and the limits that give them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

from ggufkit.conversion.architecture.layer_lists import Known


def quantiles(shares: Sequence[float]) -> list[np.generic]:
    """Return the normal distribution's quantile of each share, in F32 as PyTorch's."""
    return [_quantile(share) for share in shares]


def _quantile(share: float) -> np.generic:
    """Return the quantile of a share by way of the inverse error function, rounded at each step."""
    doubled = float(np.float32(2) * np.float32(share) - np.float32(1))
    if abs(doubled) >= 1:
        return _single(math.copysign(math.inf, doubled))
    inverse = NormalDist().inv_cdf((doubled + 1) / 2) / math.sqrt(2)
    return _single(float(np.float32(inverse)) * float(np.float32(math.sqrt(2))))


def _single(number: float) -> np.generic:
    single: np.generic = np.float32(number)
    return single


def shares(scales: Any, _: Known) -> Sequence[Any]:  # noqa: ANN401
    """Return the shortest shares that have these quantiles."""
    return ([_share(scale) for scale in scales],) if isinstance(scales, list) else ()


def _share(scale: float) -> float:
    share = NormalDist().cdf(scale)
    rounded = (round(share, digits) for digits in range(1, 9))
    return next((each for each in rounded if _quantile(each) == np.float32(scale)), share)
