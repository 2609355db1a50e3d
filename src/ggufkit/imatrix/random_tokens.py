"""Random tokens, which a Hessian counts besides its text, so that it holds for other texts too.

benchmarks/results/quality.md has what they gain.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from ggufkit.format.metadata import Metadata
from ggufkit.format.values import Strings
from ggufkit.imatrix.matrix import Counts

EVERY: Final = 4  # batches of the text for one of random tokens
NORMAL: Final = 1  # llama.cpp's number for tokens that are neither special nor unused


def usable_tokens(metadata: Metadata) -> Counts:
    """Return the ids of the normal tokens of a vocabulary."""
    vocabulary = metadata.get("tokenizer.ggml.tokens")
    size = len(vocabulary) if isinstance(vocabulary, Strings) else 0
    kinds = np.array(metadata.get("tokenizer.ggml.token_type", ()))
    return np.flatnonzero(kinds == NORMAL) if len(kinds) == size else np.arange(size)


def random_batches(
    usable: Counts, batches: Iterable[tuple[int, list[list[int]]]]
) -> list[list[list[int]]]:
    """Return a batch of random tokens for one in `EVERY` numbered batches of a text.

    It has chunks of the same sizes, and depends on the first chunk of its batch alone: so the parts
    of a text together have the same random tokens as the whole.
    """
    added = []
    for number, batch in batches:
        if number % EVERY == 0 and len(usable):
            draw = np.random.default_rng(batch[0])
            added.append([draw.choice(usable, len(chunk)).tolist() for chunk in batch])
    return added
