"""Reads the `tokenizer.*` keys of a file, and checks their types."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from ggufkit.conversion.tokenizer.entries import ID_KEYS
from ggufkit.conversion.tokenizer.pre.pre_tokenizer_name import rules_of_name
from ggufkit.conversion.tokenizer.sentencepiece_model import SPACE, PieceType
from ggufkit.errors import CheckpointError, brief
from ggufkit.format.coerce import plain
from ggufkit.format.values import Value

_PREFIX: Final = "tokenizer.ggml."
_SHIFT: Final = 1  # from ids in XLM-RoBERTa's SentencePiece model to its ids in GGUF
# Whether llama.cpp puts a token before a text if the file does not say.
_ADDS_BOS: Final = {"llama": True, "bert": True}
_ALWAYS_BOS: Final = {"gemma4", "granite-embed-multi-311m"}  # llama.cpp ignores what files say
_ADDS_EOS: Final = {"bert": True, "t5": True}
# The special tokens that llama.cpp uses if a file names none.
_IDS: Final[Mapping[str, Mapping[str, int]]] = {
    "llama": {"bos": 1, "eos": 2, "unk": 0},
    "bert": {"bos": 101, "unk": 100, "sep": 102, "pad": 0, "mask": 103},
    "t5": {"eos": 1, "unk": 2, "pad": 0},
}
MAX_FLOAT: Final = 3.4028234663852886e38  # the largest float32, which scores are stored as


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _are_types(value: object) -> bool:
    return isinstance(value, list) and all(type(n) is int and n in _TYPES for n in value)


def _are_scores(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(n, int | float) and not MAX_FLOAT < abs(n) < math.inf for n in value
    )


def _are_bytes(value: object) -> bool:
    return isinstance(value, list) and all(type(n) is int and 0 <= n <= BYTE for n in value)


BYTE: Final = 255
_TYPES: Final = frozenset((0, *PieceType))  # 0 is llama.cpp's "undefined"
# The types of keys' values, in words, and a test for them. Other keys are tested where used.
_KINDS: Final[Mapping[str, tuple[str, Callable[[object], bool]]]] = {
    "model": ("text", lambda value: isinstance(value, str)),
    "pre": ("text", lambda value: isinstance(value, str)),
    "tokens": ("a list of texts", _are_texts),
    "merges": ("a list of texts", _are_texts),
    "token_type": ("a list of token types from 0 to 6", _are_types),
    "scores": ("a list of numbers that float32 can hold", _are_scores),
    "precompiled_charsmap": ("a list of bytes", _are_bytes),
    "add_space_prefix": ("true or false", _is_bool),
    "add_sep_token": ("true or false", _is_bool),
    "remove_extra_whitespaces": ("true or false", _is_bool),
    "normalizer.lowercase": ("true or false", _is_bool),
    "normalizer.strip_accents": ("true or false", _is_bool),
}


@dataclass(frozen=True)
class VocabularyKeys:
    """A vocabulary: texts, types and scores by id, special tokens, and those added to texts."""

    metadata: Mapping[str, Value]

    def get(self, key: str) -> Any:  # noqa: ANN401 (as JSON is)
        """Return a `tokenizer.ggml.*` value as plain Python, None if missing.

        Raises CheckpointError for a value of the wrong type.
        """
        value = self.metadata.get(_PREFIX + key)
        found = None if value is None else plain(value)
        what, fits = _KINDS.get(key, ("", None))
        if found is None or fits is None or fits(found):
            return found
        raise CheckpointError(
            f"{_PREFIX}{key} must be {what}, but is {brief(found)}",
            remedy="`ggufkit edit --set-type` gives a key another value; `ggufkit check` lists "
            "all keys that are wrong",
        )

    @cached_property
    def model(self) -> str:
        """The kind of tokenizer."""
        return str(self.get("model") or "none")

    @cached_property
    def texts(self) -> list[str]:
        """The text of every token."""
        texts: list[str] | None = self.get("tokens")
        if texts is None:
            raise CheckpointError("the file has no tokens", remedy="Use a model with a vocabulary")
        return texts

    @cached_property
    def types(self) -> list[int]:
        """The type of every token."""
        return self._of_each("token_type", PieceType.NORMAL)

    @cached_property
    def scores(self) -> list[float]:
        """The score of every token."""
        return self._of_each("scores", 0.0)

    def _of_each(self, key: str, default: float) -> list[Any]:
        values: list[Any] | None = self.get(key)
        if values is None:
            return [default] * len(self.texts)
        if len(values) != len(self.texts):
            raise CheckpointError(f"{_PREFIX}{key} does not have one value for each token")
        return values

    @cached_property
    def roles(self) -> list[str]:
        """The roles of the special tokens in the file, in its order."""
        role_of = {_PREFIX + key: role for role, key in ID_KEYS.items()}
        return [role_of[key] for key in self.metadata if key in role_of]

    @cached_property
    def template(self) -> str:
        """The chat template, empty if missing."""
        return str(self.metadata.get("tokenizer.chat_template", ""))

    @cached_property
    def pre(self) -> str:
        """The name of the pre-tokenizer."""
        return str(self.get("pre") or "default")

    @cached_property
    def cleans_spaces(self) -> bool:
        """Whether decoding removes spaces before punctuation."""
        rules = rules_of_name(self.pre)
        return self.model == "gpt2" and (rules is None or rules.cleans_spaces)

    @cached_property
    def context_length(self) -> int:
        """The context that the model was trained for, in tokens; 0 if unknown."""
        architecture = str(self.metadata.get("general.architecture", ""))
        length = self.metadata.get(f"{architecture}.context_length")
        found = 0 if length is None else plain(length)
        return found if isinstance(found, int) else 0

    def is_padding(self, number: int) -> bool:
        """Whether a token only fills a row of the embeddings."""
        text = self.texts[number].removeprefix(SPACE)  # WordPiece's mark of a word's beginning
        is_unused = self.types[number] == PieceType.UNUSED
        return is_unused and text in {f"[PAD{number}]", f"[PAD{number - _SHIFT}]"}

    @cached_property
    def unpadded(self) -> int:
        """The number of tokens before the padding at the end."""
        count = len(self.texts)
        while count and self.is_padding(count - 1):
            count -= 1
        return count

    def is_added(self, number: int) -> bool:
        """Whether the tokenizer finds a token in a text before all other rules."""
        return number in self._added

    @cached_property
    def _added(self) -> frozenset[int]:
        kinds = {PieceType.CONTROL, PieceType.USER_DEFINED}
        if self.model != "gpt2":
            kinds.add(PieceType.UNKNOWN)
        return frozenset(number for number, kind in enumerate(self.types) if kind in kinds)

    def id_of(self, role: str) -> int | None:
        """Return the id of a special token, None if the file has none or it does not exist."""
        number = self.get(ID_KEYS[role])
        if number is None:
            number = _IDS.get(self.model, {}).get(role)
        return number if isinstance(number, int) and 0 <= number < len(self.texts) else None

    def text_of(self, role: str) -> str | None:
        """Return the text of a special token."""
        number = self.id_of(role)
        return None if number is None else self.texts[number]

    def adds(self, role: str) -> bool | None:
        """Return whether a special token is added to a text, None if unknown."""
        if role == "bos" and _ALWAYS_BOS & {self.model, self.pre}:
            return True
        found = self.get(f"add_{role}_token")
        if isinstance(found, bool):
            return found
        rules = rules_of_name(self.pre)
        if role == "bos" and self.model == "gpt2" and rules is not None:
            return rules.adds_bos or None
        return (_ADDS_BOS if role == "bos" else _ADDS_EOS).get(self.model)
