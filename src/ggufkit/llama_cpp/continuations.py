"""How likely texts continue in a way, and how they continue most likely: many texts at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from ctypes import c_bool
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from ggufkit.llama_cpp.library import ContextParameters
from ggufkit.llama_cpp.session import BatchToken, Session
from ggufkit.quants.parallel import Floats
from ggufkit.system.cancellation import check_cancelled

TokenIds = Sequence[int]
Payload = TypeVar("Payload")


class TextsSession(Session):
    """A session of up to `sequences` texts that share `cells` tokens of cache.

    The texts may have any lengths, and tokens in common.
    """

    def __init__(self, path: Path, *, cells: int, sequences: int, batch: int, threads: int) -> None:
        """Load the model; what Session raises."""
        self.sequences: int = sequences
        self.batch: int = batch
        length = -(-cells // sequences)
        self.cells: int = length * sequences
        super().__init__(path, length=length, batch=batch, sequences=sequences, threads=threads)

    def _parameters(self, length: int, batch: int, sequences: int) -> ContextParameters:
        chosen = super()._parameters(length, batch, sequences)
        c_bool.from_buffer(chosen, self.llama.places.kv_unified).value = True
        return chosen


class Score(NamedTuple):
    """The log probability of a continuation, and whether each token of it is the likeliest."""

    log_probability: float = 0.0
    is_greedy: bool = True


class SharedContext(NamedTuple):
    """Texts that begin with the same tokens; `continuations` has what follows, by number."""

    context: TokenIds
    continuations: Mapping[int, TokenIds]


def score(
    session: TextsSession, texts: Sequence[tuple[TokenIds, TokenIds]]
) -> Iterator[tuple[int, Score]]:
    """Yield the number and score of each text: tokens of a context, and of its continuation.

    A context that several texts have is computed once. Context and continuation have at least one
    token, and together no more than the session has cells. Scores come in any order.
    """
    groups = _grouped(session, texts)
    for numbers in _packed(session, map(_size, groups)):
        pack = [groups[number] for number in numbers]
        scores = {number: Score() for group in pack for number in group.continuations}
        session.clear()
        for row, targets in _outputs(session, list(_steps(pack))):
            best = row.argmax()
            total = np.log(np.exp(row - row[best]).sum(dtype=np.float64))
            for number, token in targets:
                before = scores[number]
                change = float(row[token]) - float(row[best]) - float(total)
                is_greedy = before.is_greedy and bool(best == token)
                scores[number] = Score(before.log_probability + change, is_greedy)
        yield from scores.items()


def generate(
    session: TextsSession,
    prompts: Sequence[tuple[TokenIds, int]],
    is_complete: Callable[[int, TokenIds], bool],
) -> Iterator[tuple[int, TokenIds]]:
    """Yield the number of each prompt, and the likeliest tokens after it, as many as its limit.

    They end earlier where `is_complete(number, tokens)`. A prompt and its limit are no more than
    the session has cells.
    """
    for numbers in _packed(session, ((len(prompt) + limit, 1) for prompt, limit in prompts)):
        answers: dict[int, list[int]] = {number: [] for number in numbers}
        owners = {number: (sequence,) for sequence, number in enumerate(numbers)}
        session.clear()
        steps = [
            (BatchToken(token, place, owners[number], place + 1 == len(prompts[number][0])), number)
            for number in numbers
            for place, token in enumerate(prompts[number][0])
        ]
        while steps:
            following = []
            for row, number in _outputs(session, steps):
                (prompt, limit), answer = prompts[number], answers[number]
                answer.append(int(row.argmax()))
                place = len(prompt) + len(answer) - 1
                token = BatchToken(answer[-1], place, owners[number], is_output=True)
                is_last = len(answer) == limit or is_complete(number, answer)
                following += [] if is_last else [(token, number)]
            steps = following
        yield from answers.items()


def _grouped(
    session: TextsSession, texts: Sequence[tuple[TokenIds, TokenIds]]
) -> list[SharedContext]:
    """Return texts by context, the longest first; a group fits into the session."""
    by_context: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for number, (context, _) in enumerate(texts):
        by_context[tuple(context)].append(number)
    groups = []
    for context, numbers in by_context.items():
        shared: dict[int, TokenIds] = {}
        for number in numbers:
            longer = {**shared, number: texts[number][1]}
            if shared and not _fits(session, _size(SharedContext(context, longer))):
                groups.append(SharedContext(context, shared))
                longer = {number: texts[number][1]}
            shared = longer
        groups.append(SharedContext(context, shared))
    return sorted(groups, key=_size, reverse=True)


def _size(group: SharedContext) -> tuple[int, int]:
    """Return the cells and sequences of a group; the last token of a text needs no cell."""
    cells = sum(len(tokens) - 1 for tokens in group.continuations.values())
    return len(group.context) + cells, len(group.continuations)


def _fits(session: TextsSession, size: tuple[int, int]) -> bool:
    # The state of a recurrent model belongs to one sequence.
    most = 1 if session.is_recurrent else session.sequences
    return size[0] <= session.cells and size[1] <= most


def _packed(session: TextsSession, sizes: Iterable[tuple[int, int]]) -> Iterator[list[int]]:
    """Yield numbers of what is computed together, by its cells and sequences."""
    pack: list[int] = []
    cells = sequences = 0
    for number, size in enumerate(sizes):
        cells, sequences = cells + size[0], sequences + size[1]
        if pack and (cells > session.cells or sequences > session.sequences):
            yield pack
            pack, (cells, sequences) = [], size
        pack.append(number)
    if pack:
        yield pack


def _steps(groups: Iterable[SharedContext]) -> Iterator[tuple[BatchToken, list[tuple[int, int]]]]:
    """Yield the tokens to compute, and for outputs the numbers of texts and their next tokens."""
    first = 0
    for context, continuations in groups:
        owners = range(first, first + len(continuations))
        first += len(continuations)
        for place, token in enumerate(context):
            is_last = place + 1 == len(context)
            following = [(number, tokens[0]) for number, tokens in continuations.items()]
            yield BatchToken(token, place, (*owners,), is_last), following if is_last else []
        for sequence, (number, tokens) in zip(owners, continuations.items(), strict=True):
            for place, (token, after) in enumerate(pairwise(tokens), len(context)):
                yield BatchToken(token, place, (sequence,), is_output=True), [(number, after)]


def _outputs(
    session: TextsSession, steps: Sequence[tuple[BatchToken, Payload]]
) -> Iterator[tuple[Floats, Payload]]:
    """Compute tokens; yield the logits of outputs, and what belongs to them."""
    for start in range(0, len(steps), session.batch):
        check_cancelled()
        part = steps[start : start + session.batch]
        session.decode_batch([token for token, _ in part])
        payloads = [payload for token, payload in part if token.is_output]
        if payloads:
            yield from zip(session.logits_in_place(), payloads, strict=True)
