"""Collects the tokens of a vocabulary and its keys, in the order of writing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from ggufkit.conversion.tokenizer.sentencepiece_model import PieceModel, PieceType
from ggufkit.format.coerce import typed
from ggufkit.format.values import Strings, TypedValue

PAD_SCORE: Final = -10000.0
ADDED_SCORE: Final = -1000.0

# llama.cpp's names of special tokens; "seperator" is GGUF's own spelling.
ID_KEYS: Final = {
    "bos": "bos_token_id",
    "eos": "eos_token_id",
    "unk": "unknown_token_id",
    "sep": "seperator_token_id",
    "pad": "padding_token_id",
    "mask": "mask_token_id",
    "eot": "eot_token_id",
    "eom": "eom_token_id",
}
ADD_KEYS: Final = ("bos", "eos", "sep")
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
        """Return the number of tokens."""
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
    """Typed key-values in the order of their first setting."""

    def __init__(self, appended: Sequence[str] = ()) -> None:
        """Begin empty; the control tokens `appended` come after all others."""
        self.items: dict[str, TypedValue] = {}
        self._appended = appended

    def string(self, key: str, text: str) -> None:
        """Set a string; skip an empty one, as llama.cpp's converter does."""
        if text:
            self.items[key] = typed("string", text)

    def boolean(self, key: str, value: object) -> None:
        """Set a boolean."""
        self.items[key] = bool(value)

    def number(self, key: str, value: object) -> None:
        """Set an unsigned number."""
        self.items[key] = typed("uint32", value)

    def leave_out(self, key: str) -> None:
        """Remove a key."""
        self.items.pop(key, None)

    def identifier(self, name: str, number: int) -> None:
        """Set the id of a special token; skip a name without a key."""
        if name in ID_KEYS:
            self.number(f"tokenizer.ggml.{ID_KEYS[name]}", number)

    def add(self, name: str, value: object) -> None:
        """Set whether a special token is added to a text."""
        if name in ADD_KEYS:
            self.boolean(f"tokenizer.ggml.add_{name}_token", value)

    def strings(self, key: str, texts: Sequence[str]) -> None:
        """Set an array of strings; skip an empty one."""
        if texts:
            self.items[key] = Strings(texts)

    def bytes(self, key: str, data: bytes) -> None:
        """Set an array of bytes; skip an empty one."""
        if data:
            self.items[key] = typed("array[uint8]", np.frombuffer(data, np.uint8))

    def head(self, model: str, pre: str | None) -> None:
        """Set the kind of tokenizer and the name of its pre-tokenizer."""
        self.string("tokenizer.ggml.model", model)
        if pre is not None:
            self.string("tokenizer.ggml.pre", pre)

    def tokens(self, tokens: Tokens, *, scored: bool) -> None:
        """Set texts, scores if the kind of tokenizer has them, and types."""
        count = len(self._appended)
        self.strings("tokenizer.ggml.tokens", [*tokens.texts, *self._appended])
        if scored:
            scores = [*tokens.scores, *[ADDED_SCORE] * count]
            self.items["tokenizer.ggml.scores"] = np.array(scores, np.float32)
        types = [*tokens.types, *[PieceType.CONTROL] * count]
        self.items["tokenizer.ggml.token_type"] = np.array(types, np.int32)

    def no_scores(self, count: int) -> None:
        """Set scores that llama.cpp does not read: whole numbers, as its converter writes them."""
        self.items["tokenizer.ggml.scores"] = np.zeros(count, np.int32)

    def chat(self, template: str | Sequence[Mapping[str, str]]) -> None:
        """Set the chat template, or several by name; `default` becomes the unnamed one."""
        if isinstance(template, str):
            self.string("tokenizer.chat_template", template)
            return
        named = [(_key_part(t.get("name", "")), t.get("template")) for t in template]
        known = {name: text for name, text in named if name and text is not None}
        default = known.pop("default", None)
        for name, text in known.items():
            self.string(f"tokenizer.chat_template.{name}", text)
        self.strings("tokenizer.chat_templates", list(known))
        if default is not None:
            self.string("tokenizer.chat_template", default)


def looks_special(text: str) -> bool:
    """Whether a token must be a control token even if its model does not mark it."""
    return text in _CONTROL or any(
        text.startswith(first) and text.endswith(last) for first, last in _CONTROL_ENDS
    )


def _key_part(name: str) -> str:
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in name)
