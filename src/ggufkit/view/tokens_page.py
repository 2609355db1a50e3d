"""The view of the tokenizer: search its tokens, and see how it splits a text."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ggufkit.conversion.tokenizer.byte_alphabet import BYTE_OF
from ggufkit.conversion.tokenizer.sentencepiece_model import SPACE, PieceType
from ggufkit.errors import GGUFError, MissingKeyError
from ggufkit.format.values import whole_number
from ggufkit.view.plain_values import cut, number, page_of
from ggufkit.view.shown_model import ShownModel

MAX_CHARACTERS: Final = 100_000  # of a text to split
SHOWN_MERGES: Final = 100  # of one token
_TYPES: Final = "tokenizer.ggml.token_type"
_SCORES: Final = "tokenizer.ggml.scores"


def tokens_facts(shown: ShownModel) -> dict[str, Any]:
    """Return the kind of the tokenizer, its special tokens, and its number of tokens."""
    metadata = shown.model.metadata
    texts = shown.tokens()
    special = [
        {"key": key.removeprefix("tokenizer.ggml."), "id": at, "text": _text(texts, at)}
        for key, value in metadata.items()
        if key.startswith("tokenizer.ggml.")
        and key.endswith("_token_id")
        and (at := whole_number(value)) is not None
    ]
    return {
        "kind": cut(str(metadata.get("tokenizer.ggml.model", ""))),
        "pre": cut(str(metadata.get("tokenizer.ggml.pre", ""))),
        "tokens": len(texts),
        "merges": len(shown.merges()),
        "special": special,
    }


def _text(texts: list[str], at: int) -> str:
    return cut(texts[at]) if 0 <= at < len(texts) else ""


def token_rows(shown: ShownModel, search: str, start: int, count: int) -> dict[str, Any]:
    """Return the tokens whose id is `search`, or whose text contains it."""
    texts = shown.tokens()
    found = page_of(_found(texts, search), start, count)
    found["rows"] = [token(shown, at) for at in found["rows"]]
    return found


def _found(texts: list[str], search: str) -> list[int]:
    """Return ids: the one that is asked for, exact texts, then texts that contain the search."""
    if not search:
        return list(range(len(texts)))
    spelled = {search, search.replace(" ", SPACE), _in_byte_alphabet(search)}
    first = [int(search)] if search.isascii() and search.isdecimal() else []
    first = [at for at in first if at < len(texts)]
    exact = [at for at, text in enumerate(texts) if text in spelled]
    holding = [at for at, text in enumerate(texts) if any(part in text for part in spelled)]
    return list(dict.fromkeys((*first, *exact, *holding)))


_CHARACTER_OF: Final = {byte: character for character, byte in BYTE_OF.items()}


def _in_byte_alphabet(text: str) -> str:
    """Return a text as byte-level vocabularies spell it."""
    data = text.encode("utf-8", "surrogatepass")
    return "".join(_CHARACTER_OF.get(byte, "\0") for byte in data)


def token(shown: ShownModel, id: int) -> dict[str, Any]:
    """Return what the file says of a token; MissingKeyError for an id that does not exist."""
    texts = shown.tokens()
    if not 0 <= id < len(texts):
        raise MissingKeyError(
            f"the vocabulary has no token {id}", remedy=f"Use an id below {len(texts)}"
        )
    kind, score = _item(shown, _TYPES, id), _item(shown, _SCORES, id)
    known = {each.value: each.name.lower().replace("_", " ") for each in PieceType}
    data = shown.piece(id)
    return {
        "id": id,
        "text": cut(texts[id]),
        "bytes": data[:64].hex(" "),
        "nbytes": len(data),
        "shown": cut(data.decode(errors="replace")),
        "type": None if kind is None else known.get(int(kind), str(int(kind))),
        "score": None if score is None else number(score),
    }


def _item(shown: ShownModel, key: str, at: int) -> Any:  # noqa: ANN401 (a number)
    found = shown.model.metadata.get(key)
    is_list = isinstance(found, np.ndarray) and found.dtype.kind in "iuf" and at < len(found)
    return found[at] if is_list and isinstance(found, np.ndarray) else None


def token_merges(shown: ShownModel, id: int) -> dict[str, Any]:
    """Return the merges that make a token, and those that use it, with their ranks."""
    row = token(shown, id)
    text = shown.tokens()[id]
    made: list[dict[str, Any]] = []
    used: list[dict[str, Any]] = []
    for rank, merge in enumerate(shown.merges()):
        left, _, right = merge.partition(" ")
        if left + right == text:
            made.append({"rank": rank, "left": cut(left), "right": cut(right)})
        elif text in {left, right} and len(used) < SHOWN_MERGES:
            used.append({"rank": rank, "left": cut(left), "right": cut(right)})
    return row | {"made": made[:SHOWN_MERGES], "used": used}


def split_text(shown: ShownModel, text: str, *, special: bool = True) -> dict[str, Any]:
    """Return the tokens of a text, as llama.cpp splits it: ids, and where each stands in the text.

    `special` adds the tokens that llama.cpp adds. Raises as `ggufkit.tokenizer` does.
    """
    if len(text) > MAX_CHARACTERS:
        raise GGUFError(
            f"the text has {len(text):,} characters", remedy=f"Use up to {MAX_CHARACTERS:,}"
        )
    encoded = shown.tokenizer().encode(text, add_special_tokens=special)
    texts = shown.tokens()
    tokens = [
        {"id": at, "text": _text(texts, at), "start": start, "stop": stop}
        for at, (start, stop) in zip(encoded.ids, encoded.offsets, strict=True)
    ]
    return {"count": len(tokens), "characters": len(text), "tokens": tokens}
