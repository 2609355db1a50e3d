"""The weighted errors that ggml's rules for blocks aim at, computed in doubles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ggufkit import quants
from ggufkit.format.types import tensor_type

AnyFloats = npt.NDArray[Any]

# The elements whose mean square is mixed in, and how many times, other than twice that of a block.
MIXED = {"IQ4_NL": (32, 2), "Q2_K": (256, 1), "IQ2_XXS": (256, 1), "IQ2_XS": (256, 1)}
# The types whose rule without importance weights errors by squares of elements alone. A search adds
# four mean squares of the block's elements.
SQUARES_ALONE = {"IQ4_NL", "IQ4_XS", "Q3_K", "Q6_K"}
FP4 = {"MXFP4", "NVFP4"}


def _repeated(values: AnyFloats, count: int) -> AnyFloats:
    return np.repeat(values, count, axis=-1)


def _mean_squares(x: AnyFloats, count: int) -> AnyFloats:
    return _repeated((x.reshape(len(x), -1, count) ** 2).mean(axis=2), count)


def rule_weights(name: str, x: AnyFloats, importance: AnyFloats | None) -> AnyFloats:
    """Return the weights of elements in the error that ggml's rule for `name` aims at."""
    x = x.astype(np.float64)
    weighted = importance is not None
    columns = importance.astype(np.float64) if weighted else None
    if name in {"Q4_0", "Q4_1", "Q5_0", "Q5_1"}:
        rows = np.square(x).mean(axis=1, keepdims=True)
        return columns * np.sqrt(rows + x * x) if weighted else np.ones_like(x)
    if name in {*FP4, "Q6_K"} and weighted:
        return columns + 0 * x
    if weighted:
        size, share = MIXED.get(name, (256, 2))
        return columns * np.sqrt(share * _mean_squares(x, size) + x * x)
    if name in {"Q4_K", "Q5_K"}:
        return np.sqrt(_mean_squares(x, 32)) + abs(x)
    if name == "IQ2_S":
        return 0.5 * _mean_squares(x, 256) + x * x
    others = {"Q2_K": abs(x)} | dict.fromkeys(FP4, np.ones_like(x))
    return others.get(name, x * x)


def search_weights(name: str, x: AnyFloats, importance: AnyFloats | None) -> AnyFloats:
    """Return the weights of elements in the error that a search minimizes."""
    weights = rule_weights(name, x, importance)
    if name not in SQUARES_ALONE or importance is not None:
        return weights
    return weights + 4 * _mean_squares(x.astype(np.float64), tensor_type(name).block_size)


def block_errors(
    name: str,
    x: AnyFloats,
    importance: AnyFloats | None,
    packed: AnyFloats,
    weights_of: Callable[[str, AnyFloats, AnyFloats | None], AnyFloats] = rule_weights,
) -> AnyFloats:
    """Return the weighted error of each block; ggml's plain rule for Q2_K adds distances."""
    miss = abs(x - quants.dequantize(packed, name).astype(np.float64))
    if name != "Q2_K" or importance is not None:
        miss = miss * miss
    error = weights_of(name, x, importance) * miss
    return error.reshape(len(x), -1, tensor_type(name).block_size).sum(axis=2)
