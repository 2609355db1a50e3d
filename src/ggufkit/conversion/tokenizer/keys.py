"""Reads the `tokenizer.*` keys of a file, and checks their types."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from ggufkit.conversion.tokenizer.entries import ID_KEYS, PREFIX
from ggufkit.conversion.tokenizer.pre.pre_tokenizer_name import DEFAULT, rules_of_name
from ggufkit.conversion.tokenizer.sentencepiece_model import SPACE, PieceType
from ggufkit.errors import CheckpointError, brief
from ggufkit.format.coerce import plain
from ggufkit.format.values import Value
from ggufkit.validation.typed_values import MAX_FLOAT32

_SHIFT: Final = 1  # from ids in XLM-RoBERTa's SentencePiece model to its ids in GGUF
# Whether llama.cpp puts a token before or after a text if the file does not say.
_ADDS: Final = {("bos", "llama"), ("bos", "bert"), ("eos", "bert"), ("eos", "t5")}
_ALWAYS_BOS: Final = {"gemma4", "granite-embed-multi-311m"}  # llama.cpp ignores what files say
# The special tokens that llama.cpp uses if a file names none.
_IDS: Final[Mapping[str, Mapping[str, int]]] = {
    "llama": {"bos": 1, "eos": 2, "unk": 0},
    "bert": {"bos": 101, "unk": 100, "sep": 102, "pad": 0, "mask": 103},
    "t5": {"eos": 1, "unk": 2, "pad": 0},
}
_TYPES: Final = frozenset((0, *PieceType))  # 0 is llama.cpp's "undefined"


# The types of keys' values, in words, and a test for each value, or each item of a list. Other keys
# are tested where used.
_TEXT: Final = ("text", lambda value: isinstance(value, str))
_FLAG: Final = ("true or false", lambda value: isinstance(value, bool))
_KINDS: Final[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
    **dict.fromkeys(("model", "pre"), _TEXT),
    **dict.fromkeys(("tokens", "merges"), ("a list of texts", _TEXT[1])),
    "token_type": (
        "a list of token types from 0 to 6",
        lambda value: type(value) is int and value in _TYPES,
    ),
    "scores": (
        "a list of numbers that float32 can hold",
        lambda value: isinstance(value, int | float) and not MAX_FLOAT32 < abs(value) < math.inf,
    ),
    "precompiled_charsmap": (
        "a list of bytes",
        lambda value: type(value) is int and value in range(256),
    ),
    **dict.fromkeys(("add_space_prefix", "add_sep_token", "remove_extra_whitespaces"), _FLAG),
    **dict.fromkeys(("normalizer.lowercase", "normalizer.strip_accents"), _FLAG),
}


@dataclass(frozen=True)
class VocabularyKeys:
    """A vocabulary: texts, types and scores by id, special tokens, and tokens added to texts."""

    metadata: Mapping[str, Value]

    def get(self, key: str) -> Any:  # noqa: ANN401 (as JSON is)
        """Return a `tokenizer.ggml.*` value as plain Python, None if missing.

        Raises CheckpointError for a value of the wrong type.
        """
        typed = self.metadata.get(PREFIX + key)
        value = None if typed is None else plain(typed)
        if value is None or key not in _KINDS:
            return value
        what, fits = _KINDS[key]
        is_list = what.startswith("a list")
        if isinstance(value, list) == is_list and all(map(fits, value if is_list else [value])):
            return value
        raise CheckpointError(
            f"{PREFIX}{key} must be {what}, but is {brief(value)}",
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
            raise CheckpointError(f"{PREFIX}{key} does not have one value for each token")
        return values

    @cached_property
    def roles(self) -> list[str]:
        """The roles of the special tokens in the file, in its order."""
        role_of = {PREFIX + key: role for role, key in ID_KEYS.items()}
        return [role_of[key] for key in self.metadata if key in role_of]

    @cached_property
    def template(self) -> str:
        """The chat template, empty if missing."""
        return str(self.metadata.get("tokenizer.chat_template", ""))

    @cached_property
    def pre(self) -> str:
        """The name of the pre-tokenizer."""
        return str(self.get("pre") or DEFAULT)

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
        number = 0 if length is None else plain(length)
        return number if isinstance(number, int) else 0

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
        kind = self.types[number]
        is_unknown = kind == PieceType.UNKNOWN and self.model != "gpt2"
        return is_unknown or kind in {PieceType.CONTROL, PieceType.USER_DEFINED}

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
        adds = self.get(f"add_{role}_token")
        if isinstance(adds, bool):
            return adds
        rules = rules_of_name(self.pre)
        has_rule = role == "bos" and self.model == "gpt2" and rules is not None and rules.adds_bos
        return has_rule or (role, self.model) in _ADDS or None
