"""Run a model over the chunks of a text, and note figures at each counted position.

Source: `perplexity` and `kl_divergence` in llama.cpp's `tools/perplexity/perplexity.cpp`. The
tokens are passed in the pieces that llama.cpp computes at once. So the logits are the same, and
only the logits of one piece are in memory, however long the context is.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from ggufkit.errors import GGUFError, ValueTypeError
from ggufkit.evaluation.base_file import BaseFile, TokenChunks
from ggufkit.evaluation.log_probabilities import compare
from ggufkit.evaluation.scores import FIELDS, Scores
from ggufkit.llama_cpp.session import Session
from ggufkit.quants.parallel import Floats
from ggufkit.system.cancellation import check_cancelled
from ggufkit.system.threads import in_turn, pool_of

CONTEXT: Final = 512  # tokens of a chunk, as in llama-perplexity
BATCH: Final = 2048  # tokens that llama-perplexity hands over at once
MOST_SEQUENCES: Final = 64  # llama.cpp computes at most 256 together


@dataclass(frozen=True)
class Prediction:
    """What a model computed at a counted position, and the `token` that comes next."""

    chunk: int
    position: int
    token: int
    logits: Floats


Meter = Callable[[Prediction], tuple[float, ...]]  # returns the figures at a position


def comparing_with(base: BaseFile) -> Meter:
    """Return a meter that compares a model with a base."""

    def meter(prediction: Prediction) -> tuple[float, ...]:
        expected = base.log_probabilities(prediction.chunk, prediction.position)
        return compare(prediction.logits, expected, prediction.token)

    return meter


class TextReader(contextlib.AbstractContextManager["TextReader"]):
    """A model in llama.cpp that reads a text chunk by chunk; a context manager."""

    def __init__(
        self,
        path: Path,
        context: int,
        *,
        micro_batch: int,
        threads: int,
        kind: type[Session] = Session,
    ) -> None:
        self.path = path
        self.context = context
        self.sequences: int = max(1, min(BATCH // context, MOST_SEQUENCES))
        self._batch = min(BATCH, self.sequences * context)
        self._micro_batch = min(micro_batch, self._batch)
        self._threads = threads
        self.session: Session = kind(
            path,
            length=context,
            batch=self._batch,
            sequences=self.sequences,
            micro_batch=self._micro_batch,
            threads=threads,
        )

    def __exit__(self, *_: object) -> None:
        self.session.close()

    def tokenize(self, text: bytes, chunks: int | None = None) -> TokenChunks:
        """Return the tokens of a text: (chunks, context)."""
        if self.session.adds_end:
            raise GGUFError(
                f"the tokenizer of {self.path} ends each text with a token",
                remedy="Perplexity is for models that continue a text",
            )
        tokens = self.session.tokenize(text)
        available = len(tokens) // self.context
        if not available:
            raise ValueTypeError(
                f"the text has {len(tokens)} tokens, but a chunk needs {self.context}",
                remedy="Use a longer text, or fewer tokens per chunk",
            )
        available = available if chunks is None else min(chunks, available)
        whole = np.array(tokens[: available * self.context], np.int32)
        return whole.reshape(available, self.context)

    def read(
        self, tokens: TokenChunks, meter: Meter, start: int = 0
    ) -> Iterator[tuple[int, Scores]]:
        """Yield groups of chunks from `start` on: how many are done, and their scores."""
        with pool_of(self._threads) as pool:
            for first in range(start, len(tokens), self.sequences):
                check_cancelled()
                last = min(first + self.sequences, len(tokens))
                yield last, self._group(tokens, range(first, last), meter, pool)

    def _group(self, tokens: TokenChunks, chunks: range, meter: Meter, pool: Executor) -> Scores:
        scores = Scores.empty(len(chunks), self.context)
        head = [] if self.session.beginning is None else [self.session.beginning]
        texts = [[*head, *tokens[chunk].tolist()[len(head) :]] for chunk in chunks]
        first = self.context // 2
        self.session.clear()
        for begin, end in self._pieces(len(chunks)):
            self.session.decode([text[begin:end] for text in texts], begin, first_output=first)
            places = range(max(begin, first), min(end, self.context - 1))
            if end <= first:
                continue
            rows = self.session.logits_in_place()
            length = len(rows) // len(chunks)
            jobs = [
                functools.partial(
                    self._figures_at,
                    meter,
                    Prediction(chunk, place - first, int(tokens[chunk, place + 1]), rows[row]),
                )
                for number, chunk in enumerate(chunks)
                for row, place in enumerate(places, number * length)
            ]
            figures = in_turn(pool, jobs, 2 * self._threads)
            for number in range(len(chunks)):
                for place in places:
                    scores.values[number, place - first] = next(figures)
        return scores

    def _pieces(self, sequences: int) -> Iterator[tuple[int, int]]:
        """Yield the positions that llama.cpp computes at once, equally many of each sequence."""
        count = max(1, self._micro_batch // sequences)
        for start in range(0, self.context, self._batch):
            stop = min(start + self._batch, self.context)
            for begin in range(start, stop, count):
                yield begin, min(begin + count, stop)

    def _figures_at(self, meter: Meter, prediction: Prediction) -> tuple[float, ...]:
        check_cancelled()
        figures = meter(prediction)
        if not np.isfinite(figures).all():
            raise GGUFError(
                f"{self.path} gives no finite probability in chunk {prediction.chunk + 1}",
                remedy="Look for damaged tensors: `ggufkit check --data`",
            )
        return figures + (0.0,) * (len(FIELDS) - len(figures))
