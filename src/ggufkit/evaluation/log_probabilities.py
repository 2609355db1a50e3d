"""Turns the logits of one position into log probabilities, and these into 16-bit codes.

Source: `log_softmax` in llama.cpp's `tools/perplexity/perplexity.cpp`. Each step has the same
precision as there, so that figures agree to the last digit printed.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from ggufkit.quants.parallel import Floats

LogitCodes = npt.NDArray[np.uint16]
HEAD: Final = 4  # 16-bit units before the codes of a position: two floats, scale and minimum
LEVELS: Final = np.float32(65535)
DEEPEST: Final = np.float32(16)  # log probabilities further below the highest are not kept


def units(vocabulary: int) -> int:
    """Return the 16-bit units of one position in a base file; the codes are padded to pairs."""
    return 2 * ((vocabulary + 1) // 2) + HEAD


def exponentials(values: Floats) -> Floats:
    """Return exp as the C library rounds it; NumPy's own for float32 is up to 2.5 units off."""
    result = np.empty_like(values)
    return np.exp(values, out=result, dtype=np.float64, casting="same_kind")


def log_sum(logits: Floats) -> float:
    """Return the logarithm of the sum of the exponentials of `logits - logits.max()`."""
    return float(np.log(exponentials(logits - logits.max()).sum(dtype=np.float64)))


def surprise(logits: Floats, token: int) -> float:
    """Return the negative log probability of a token."""
    return log_sum(logits) - float(logits[token] - logits.max())


def surprise_with_codes(logits: Floats, token: int, total: float) -> float:
    """Return the same in single precision, as llama-perplexity does while it writes a base.

    `total` is the logits' `log_sum`.
    """
    return float(logits.max() + np.float32(total) - logits[token])


def encode(logits: Floats, total: float) -> LogitCodes:
    """Return log probabilities in 16 bits each, behind their scale and minimum.

    `total` is the logits' `log_sum`.
    """
    highest = logits.max()
    lowest = max(logits.min(), highest - DEEPEST)
    scale = (highest - lowest) / LEVELS
    result = np.zeros(units(len(logits)), np.uint16)
    head = result[:HEAD].view(np.float32)
    head[0] = scale
    head[1] = lowest - highest - np.float32(total)
    if scale:
        codes = np.rint(np.float32(1) / scale * (logits - lowest))
        result[HEAD : HEAD + len(logits)] = np.maximum(codes, 0)
    return result


def decode(codes: LogitCodes, vocabulary: int) -> Floats:
    """Return the log probabilities of one position."""
    scale, lowest = codes[:HEAD].view(np.float32)
    values: Floats = scale * codes[HEAD : HEAD + vocabulary] + lowest
    return values


def compare(logits: Floats, base: Floats, token: int) -> tuple[float, float, float, float, bool]:
    """Compare logits with a base's log probabilities at one position.

    Returns the negative log probabilities of the token by both, the divergence, the difference of
    the token's probabilities, and whether both rank the same token first.
    """
    total = logits.max() + np.float32(log_sum(logits))
    surprise_here, surprise_of_base = total - logits[token], -base[token]
    likely = np.flatnonzero(base > -DEEPEST)
    likely_base = base[likely]
    terms = exponentials(likely_base) * (likely_base - logits[likely] + total)
    difference = exponentials(-surprise_here) - exponentials(-surprise_of_base)
    return (
        float(surprise_here),
        float(surprise_of_base),
        float(terms.sum(dtype=np.float64)),
        float(difference),
        bool(logits.argmax() == base.argmax()),
    )
