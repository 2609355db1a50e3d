"""The view of the tokenizer: search its tokens, and see how it splits a text."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ggufkit.conversion.tokenizer.sentencepiece_model import SPACE, PieceType
from ggufkit.conversion.tokenizer.token_text import CHAR_OF
from ggufkit.errors import GGUFError, MissingKeyError
from ggufkit.format.values import whole_number
from ggufkit.view.page_model import PageModel
from ggufkit.view.plain_values import cut, number, page_of

MAX_CHARACTERS: Final = 100_000  # of a text to split
MAX_SPECIAL: Final = 100  # keys that name a token; real files have about ten
SHOWN_MERGES: Final = 100  # of one token
_TYPES: Final = "tokenizer.ggml.token_type"
_SCORES: Final = "tokenizer.ggml.scores"


def tokens_facts(page: PageModel) -> dict[str, Any]:
    """Return the kind of the tokenizer, its special tokens, and its number of tokens."""
    metadata = page.model.metadata
    texts = page.tokens
    special = [
        {"key": key.removeprefix("tokenizer.ggml."), "id": token_id, "text": _text(texts, token_id)}
        for key, value in metadata.items()
        if key.startswith("tokenizer.ggml.")
        and key.endswith("_token_id")
        and (token_id := whole_number(value)) is not None
    ]
    return {
        "kind": cut(str(metadata.get("tokenizer.ggml.model", ""))),
        "pre": cut(str(metadata.get("tokenizer.ggml.pre", ""))),
        "tokens": len(texts),
        "merges": len(page.merges),
        "special": special[:MAX_SPECIAL],
    }


def _text(texts: list[str], token_id: int) -> str:
    return cut(texts[token_id]) if 0 <= token_id < len(texts) else ""


def token_rows(page: PageModel, search: str, start: int, count: int) -> dict[str, Any]:
    """Return the tokens whose id is `search`, or whose text contains it."""
    texts = page.tokens
    answer = page_of(_matching_ids(texts, search), start, count)
    answer["rows"] = [token(page, token_id) for token_id in answer["rows"]]
    return answer


def _matching_ids(texts: list[str], search: str) -> list[int]:
    """Return ids: the one that is asked for, exact texts, then texts that contain the search."""
    if not search:
        return list(range(len(texts)))
    spelled = {search, search.replace(" ", SPACE), _in_byte_alphabet(search)}
    is_id = search.isascii() and search.isdecimal() and len(search) <= len(str(len(texts)))
    first = [int(search)] if is_id and int(search) < len(texts) else []
    exact = [token_id for token_id, text in enumerate(texts) if text in spelled]
    holding = [
        token_id for token_id, text in enumerate(texts) if any(part in text for part in spelled)
    ]
    return list(dict.fromkeys((*first, *exact, *holding)))


def _in_byte_alphabet(text: str) -> str:
    """Return a text as byte-level vocabularies spell it."""
    data = text.encode("utf-8", "surrogatepass")
    return "".join(CHAR_OF[byte] for byte in data)


def token(page: PageModel, id: int) -> dict[str, Any]:
    """Return what the file says of a token; MissingKeyError for an id that does not exist."""
    texts = page.tokens
    if not 0 <= id < len(texts):
        raise MissingKeyError(
            f"the vocabulary has no token {id}", remedy=f"Use an id below {len(texts)}"
        )
    kind, score = _item(page, _TYPES, id), _item(page, _SCORES, id)
    type_names = {kind.value: kind.name.lower().replace("_", " ") for kind in PieceType}
    data = page.piece(id)
    return {
        "id": id,
        "text": cut(texts[id]),
        "bytes": data[:64].hex(" "),
        "nbytes": len(data),
        "shown": cut(data.decode(errors="replace")),
        "type": None
        if kind is None
        else type_names.get(kind, str(number(kind)).removesuffix(".0")),
        "score": None if score is None else number(score),
    }


def _item(page: PageModel, key: str, index: int) -> Any:  # noqa: ANN401 (a number)
    values = page.model.metadata.get(key)
    is_list = isinstance(values, np.ndarray) and values.dtype.kind in "iuf" and index < len(values)
    return values[index] if is_list and isinstance(values, np.ndarray) else None


def token_merges(page: PageModel, id: int) -> dict[str, Any]:
    """Return the merges that make a token, and those that use it, with their ranks."""
    row = token(page, id)
    text = page.tokens[id]
    made_by: list[dict[str, Any]] = []
    used: list[dict[str, Any]] = []
    for rank, merge in enumerate(page.merges):
        first, _, second = merge.partition(" ")
        if first + second == text:
            made_by.append({"rank": rank, "left": cut(first), "right": cut(second)})
        elif text in {first, second} and len(used) < SHOWN_MERGES:
            used.append({"rank": rank, "left": cut(first), "right": cut(second)})
    return row | {"made": made_by[:SHOWN_MERGES], "used": used}


def split_text(page: PageModel, text: str, *, special: bool = True) -> dict[str, Any]:
    """Return the tokens of a text, as llama.cpp splits it: ids, and where each stands in the text.

    `special` adds the tokens that llama.cpp adds. Raises GGUFError where `ggufkit.tokenizer` does,
    and for a vocabulary that takes too much time or memory.
    """
    if len(text) > MAX_CHARACTERS:
        raise GGUFError(
            f"the text has {len(text):,} characters", remedy=f"Use up to {MAX_CHARACTERS:,}"
        )
    text.encode()  # raises for half a surrogate pair
    return page.ask_vocabulary({"task": "split", "text": text, "special": special})
