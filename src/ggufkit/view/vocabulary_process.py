"""Work on the vocabulary of an untrusted file: the process that a `PageModel` starts.

Its time, memory and output are limited, so no vocabulary keeps the page from answering.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from ggufkit.conversion.tokenizer.sentencepiece_model import PieceType
from ggufkit.errors import GGUFError
from ggufkit.format.values import Strings
from ggufkit.frameworks.tokenizer import errors_of_library, tokenizer
from ggufkit.models.model import Model
from ggufkit.models.open import open as open_model
from ggufkit.view.plain_values import cut

MAX_SPECIAL: Final = 4096  # texts of special tokens that are marked
MAX_SPECIAL_TEXT: Final = 128  # characters of one; real ones have up to 40
MAX_PARTS: Final = 10_000  # of a prompt; what follows is one part
_TOKENS: Final = "tokenizer.ggml.tokens"
_TYPES: Final = "tokenizer.ggml.token_type"
_SPECIAL: Final = (PieceType.CONTROL, PieceType.USER_DEFINED)


def answer(job: dict[str, Any]) -> dict[str, Any]:
    """Return the tokens of the text of a job or, if `task` is "mark", its parts."""
    try:
        if job["task"] == "mark":
            return {"parts": list(marked(job["text"], special_texts(job["vocabulary"])))}
        return _tokens(job["vocabulary"], job["text"], special=job["special"])
    except GGUFError as error:
        return {"error": error.message, "remedy": error.remedy}


@functools.lru_cache(maxsize=1)
def _model(path: str) -> Model:
    return open_model(path)


@functools.lru_cache(maxsize=1)
def _tokenizer(path: str) -> Any:  # noqa: ANN401 (of an extra)
    return tokenizer(_model(path))


@functools.lru_cache(maxsize=1)
def _texts(path: str) -> list[str]:
    texts = _model(path).metadata.get(_TOKENS)
    return texts.tolist() if isinstance(texts, Strings) else []


def _tokens(path: str, text: str, *, special: bool) -> dict[str, Any]:
    splitter = _tokenizer(path)
    with errors_of_library():
        encoded = splitter.encode(text, add_special_tokens=special)
    texts = _texts(path)
    tokens = [
        {"id": token, "text": cut(texts[token]), "start": start, "stop": stop}
        for token, (start, stop) in zip(encoded.ids, encoded.offsets, strict=True)
    ]
    return {"count": len(tokens), "characters": len(text), "tokens": tokens}


@functools.lru_cache(maxsize=1)
def special_texts(path: str) -> set[str]:
    """Return the texts of control and user-defined tokens of a file."""
    types, texts = _model(path).metadata.get(_TYPES), _texts(path)
    if not isinstance(types, np.ndarray) or len(types) != len(texts):
        return set()
    ids = np.flatnonzero(np.isin(types, _SPECIAL))[:MAX_SPECIAL]
    specials = {texts[token] for token in ids}
    return {text for text in specials if text.strip() and len(text) <= MAX_SPECIAL_TEXT}


def marked(text: str, specials: set[str]) -> Iterator[dict[str, Any]]:
    """Yield the parts of a prompt, and whether each is a special token: the longest that fits."""
    lengths: dict[str, set[int]] = {}  # of special texts by their first character
    for special in specials:
        lengths.setdefault(special[0], set()).add(len(special))
    longest_first = {first: sorted(sizes, reverse=True) for first, sizes in lengths.items()}
    start = position = parts = 0
    while position < len(text) and parts < MAX_PARTS:
        sizes = longest_first.get(text[position], ())
        size = next((size for size in sizes if text[position : position + size] in specials), 0)
        if size:
            if start < position:
                yield {"text": text[start:position], "special": False}
            yield {"text": text[position : position + size], "special": True}
            start = position + size
            parts += 1
        position += size or 1
    if start < len(text):
        yield {"text": text[start:], "special": False}
