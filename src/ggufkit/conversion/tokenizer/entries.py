"""Collects the tokens of a vocabulary and its keys, in the order of writing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from ggufkit.conversion.tokenizer.sentencepiece_model import PieceModel, PieceType
from ggufkit.format.coerce import typed
from ggufkit.format.key_types import SPECIAL_TOKENS
from ggufkit.format.values import Strings, TypedValue

PREFIX: Final = "tokenizer.ggml."
PAD_SCORE: Final = -10000.0
ADDED_SCORE: Final = -1000.0

_ROLES: Final = ("bos", "eos", "unk", "sep", "pad", "mask", "eot", "eom")
ID_KEYS: Final = {role: f"{SPECIAL_TOKENS[role]}_token_id" for role in _ROLES}
# Tokens that some models mark as ordinary, although they must never be split or printed.
_CONTROL: Final = frozenset({"<pad>", "<mask>", "<2mass>", "[@BOS@]"})
_CONTROL_ENDS: Final = (("<|", "|>"), ("<｜", "｜>"), ("<unused", ">"))  # noqa: RUF001


class Tokens:
    """A table of tokens by id; unused ids stay padding."""

    def __init__(self, rows: int) -> None:
        """Begin with `rows` tokens of padding."""
        self.texts: list[str] = [f"[PAD{i}]" for i in range(rows)]
        self.scores: list[float] = [PAD_SCORE] * rows
        self.types: list[PieceType] = [PieceType.UNUSED] * rows

    def __len__(self) -> int:
        return len(self.texts)

    def put(self, number: int, text: str, score: float, kind: PieceType) -> None:
        """Set a token."""
        if number < 0:
            raise ValueError(f"a token has the id {number}")
        self.texts[number], self.scores[number], self.types[number] = text, score, kind

    def put_pieces(self, model: PieceModel) -> None:
        """Set the first tokens to the pieces of a model, as many as fit."""
        for number, piece in enumerate(model.pieces[: len(self)]):
            kind = PieceType.NORMAL if piece.type == PieceType.USER_DEFINED else piece.type
            self.put(number, piece.text, piece.score, kind)


class TokenEntries:
    """Typed `tokenizer.*` keys and values in the order of their first setting."""

    def __init__(self, appended: Sequence[str] = ()) -> None:
        """Begin empty; the control tokens `appended` come after all others."""
        self.items: dict[str, TypedValue] = {}
        self._appended = appended

    def boolean(self, key: str, value: object) -> None:
        """Set a boolean of the tokenizer."""
        self.items[PREFIX + key] = bool(value)

    def number(self, key: str, value: object) -> None:
        """Set an unsigned number under the whole key."""
        self.items[key] = typed("uint32", value)

    def identifier(self, role: str, number: int) -> None:
        """Set the id of a special token; skip a role without a key."""
        if role in ID_KEYS:
            self.number(PREFIX + ID_KEYS[role], number)

    def merges(self, merges: Sequence[str]) -> None:
        """Set the merges of BPE, if there are any."""
        if merges:
            self.items[PREFIX + "merges"] = Strings(merges)

    def charsmap(self, data: bytes) -> None:
        """Set the map of characters of a Unigram model, if it has one."""
        if data:
            self.items[PREFIX + "precompiled_charsmap"] = np.frombuffer(data, np.uint8)

    def head(self, model: str, pre: str | None) -> None:
        """Set the kind of tokenizer and the name of its pre-tokenizer."""
        self.items[PREFIX + "model"] = model
        if pre:
            self.items[PREFIX + "pre"] = typed("string", pre)

    def tokens(self, tokens: Tokens, *, scored: bool) -> None:
        """Set texts, scores if the kind of tokenizer has them, and types."""
        count = len(self._appended)
        if texts := [*tokens.texts, *self._appended]:
            self.items[PREFIX + "tokens"] = Strings(texts)
        if scored:
            scores = [*tokens.scores, *[ADDED_SCORE] * count]
            self.items[PREFIX + "scores"] = np.array(scores, np.float32)
        types = [*tokens.types, *[PieceType.CONTROL] * count]
        self.items[PREFIX + "token_type"] = np.array(types, np.int32)

    def no_scores(self, count: int) -> None:
        """Set scores that llama.cpp does not read: whole numbers, as its converter writes them."""
        self.items[PREFIX + "scores"] = np.zeros(count, np.int32)

    def chat(self, template: str | Sequence[Mapping[str, str]] | None) -> None:
        """Set the chat template, or several by name; `default` becomes the unnamed one.

        None removes it; an empty one is skipped, as llama.cpp's converter does.
        """
        key = "tokenizer.chat_template"
        if template is None:
            self.items.pop(key, None)
            return
        if isinstance(template, str):
            template = [{"name": "default", "template": template}]
        texts = {
            re.sub("[^0-9A-Za-z]", "_", entry["name"]): entry["template"]
            for entry in template
            if entry.get("name") and entry.get("template") is not None
        }
        default = texts.pop("default", None)
        self.items |= {f"{key}.{name}": typed("string", t) for name, t in texts.items() if t}
        if texts:
            self.items[f"{key}s"] = Strings(list(texts))
        if default:
            self.items[key] = typed("string", default)


def looks_special(text: str) -> bool:
    """Whether a token must be a control token even if its model does not mark it."""
    return text in _CONTROL or any(
        text.startswith(first) and text.endswith(last) for first, last in _CONTROL_ENDS
    )
