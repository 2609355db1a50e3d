"""Splits a text into the words that a tokenizer's model sees, by its added tokens and its rules.

The rules are untrusted: an expression may take forever, replacements may grow without limit. So
they run in a separate process with limits. This module imports little, to start fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from ggufkit.conversion.tokenizer.pre.split_rules import (
    SplitRule,
    UntranslatableError,
    normalized,
    split,
)
from ggufkit.errors import MISFORMED
from ggufkit.system.sandbox import StoppedError, answer_of

MOST_GROWTH: Final = 16  # a byte may become two characters, and compatibility forms grow
TextPiece = tuple[str, bool]  # a text, and whether it is an added token
Added = Mapping[str, Any]  # the fields of an AddedToken


def words(
    text: str,
    pre_tokenizer: SplitRule | None,
    normalizer: SplitRule | None = None,
    added: Iterable[Added] = (),
) -> list[TextPiece]:
    """Return the words and the added tokens of a text.

    Raises UntranslatableError for unknown rules and for rules that exceed the limits of time and
    memory; ValueError for malformed rules.
    """
    job = {"text": text, "pre_tokenizer": pre_tokenizer, "normalizer": normalizer}
    try:
        reply = answer_of(__name__, {**job, "added": [*added]})
    except StoppedError as error:
        raise UntranslatableError(f"rules that cannot be applied ({error})") from None
    if "unknown" in reply:
        raise UntranslatableError(reply["unknown"])
    if "misformed" in reply:
        raise ValueError(reply["misformed"])
    return [(word, is_added) for word, is_added in reply["words"]]


def answer(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to a job; this runs in the separate process."""
    try:
        pieces = [*_words(**job)]
    except UntranslatableError as error:
        return {"unknown": str(error)}
    except MISFORMED as error:
        return {"misformed": f"{error.__class__.__name__}: {error}"}
    size, length = sum(len(word) for word, _ in pieces), len(job["text"])
    if size > MOST_GROWTH * length:
        return {"unknown": f"rules that make {size} characters of {length}"}
    return {"words": pieces}


def _words(
    text: str, pre_tokenizer: SplitRule | None, normalizer: SplitRule | None, added: Iterable[Added]
) -> Iterator[TextPiece]:
    for i, (piece, is_added) in enumerate(_pieces(text, normalizer, added)):
        if is_added:
            yield piece, True
        else:
            yield from ((word, False) for word in split(piece, pre_tokenizer, is_first=i == 0))


# Added tokens are found first: some in the original text, others in the normalized one.
def _pieces(text: str, rule: SplitRule | None, added: Iterable[Added]) -> Iterator[TextPiece]:
    tokens = [*added]
    raw = {t["content"]: t for t in tokens if not t["normalized"]}
    other = {normalized(t["content"], rule): t for t in tokens if t["normalized"]}
    for piece in _split_at_tokens(text, raw):
        if piece[1]:
            yield piece
        else:
            yield from _split_at_tokens(normalized(piece[0], rule), other)


def _split_at_tokens(text: str, tokens: Mapping[str, Added]) -> Iterator[TextPiece]:
    by_first: dict[str, list[str]] = {}
    for key in sorted(tokens, key=len, reverse=True):
        by_first.setdefault(key[:1], []).append(key)
    start = place = 0
    while place < len(text):
        candidates = by_first.get(text[place], ())
        content = next((c for c in candidates if text.startswith(c, place)), None)
        end = place + len(content or "")
        if content is None or not _may_match(text, place, end, tokens[content]):
            place += 1
            continue
        token = tokens[content]
        if before := text[start:place].rstrip() if token["lstrip"] else text[start:place]:
            yield before, False
        yield token["content"], True
        start = place = end + (len(text[end:]) - len(text[end:].lstrip()) if token["rstrip"] else 0)
    if start < len(text):
        yield text[start:], False


def _may_match(text: str, start: int, end: int, token: Added) -> bool:
    if not token["single_word"]:
        return True
    around = text[start - 1 : start] + text[end : end + 1]
    return not any(char.isalnum() or char == "_" for char in around)
