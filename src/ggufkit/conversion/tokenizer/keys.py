"""The `tokenizer.*` keys of a file, read with care."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from ggufkit.conversion.tokenizer.entries import ID_KEYS
from ggufkit.conversion.tokenizer.pre.pre_tokenizer_name import rules_of_name
from ggufkit.conversion.tokenizer.sentencepiece_model import SPACE, PieceType
from ggufkit.errors import CheckpointError
from ggufkit.format.coerce import plain
from ggufkit.format.values import Value

_PREFIX: Final = "tokenizer.ggml."
_SHIFT: Final = 1  # of XLM-RoBERTa's pieces and padding against those of its SentencePiece model
# Whether llama.cpp puts a token before a text where the file does not say.
_ADDS_BOS: Final = {"llama": True, "bert": True}
_ADDS_EOS: Final = {"bert": True, "t5": True}
# The special tokens that llama.cpp takes where a file names none.
_IDS: Final[Mapping[str, Mapping[str, int]]] = {
    "llama": {"bos": 1, "eos": 2, "unk": 0},
    "bert": {"bos": 101, "unk": 100, "sep": 102, "pad": 0, "mask": 103},
    "t5": {"eos": 1, "unk": 2, "pad": 0},
}


@dataclass(frozen=True)
class VocabularyKeys:
    """A vocabulary: texts, types and scores by id, special tokens and what is put around a text."""

    metadata: Mapping[str, Value]

    def get(self, key: str) -> Any:  # noqa: ANN401 (as JSON is)
        """Return a `tokenizer.ggml.*` value as plain Python, None where there is none."""
        value = self.metadata.get(_PREFIX + key)
        return None if value is None else plain(value)

    @cached_property
    def model(self) -> str:
        """The kind of tokenizer."""
        return str(self.get("model") or "none")

    @cached_property
    def texts(self) -> list[str]:
        """The text of every token."""
        texts = self.get("tokens")
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
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
        values = self.get(key)
        if values is None:
            return [default] * len(self.texts)
        if not isinstance(values, list) or len(values) != len(self.texts):
            raise CheckpointError(f"{_PREFIX}{key} does not have one value for each token")
        return values

    @cached_property
    def roles(self) -> list[str]:
        """The roles of special tokens that the file names, in its order."""
        role_of = {_PREFIX + key: role for role, key in ID_KEYS.items()}
        return [role_of[key] for key in self.metadata if key in role_of]

    @cached_property
    def template(self) -> str:
        """The chat template, empty where there is none."""
        return str(self.metadata.get("tokenizer.chat_template", ""))

    @cached_property
    def pre(self) -> str:
        """The name of the pre-tokenizer."""
        return str(self.get("pre") or "default")

    @cached_property
    def cleans_spaces(self) -> bool:
        """Whether spaces before punctuation vanish from decoded texts."""
        rules = rules_of_name(self.pre)
        return self.model == "gpt2" and (rules is None or rules.cleans_spaces)

    @cached_property
    def context_length(self) -> int:
        """The context the model was trained for, 0 where unknown."""
        architecture = str(self.metadata.get("general.architecture", ""))
        length = self.metadata.get(f"{architecture}.context_length")
        found = 0 if length is None else plain(length)
        return found if isinstance(found, int) else 0

    def is_padding(self, number: int) -> bool:
        """Whether a token only fills a row of the embeddings."""
        text = self.texts[number].removeprefix(SPACE)  # which WordPiece marks beginnings with
        is_unused = self.types[number] == PieceType.UNUSED
        return is_unused and text in {f"[PAD{number}]", f"[PAD{number - _SHIFT}]"}

    @cached_property
    def unpadded(self) -> int:
        """How many tokens there are before the padding at the end."""
        count = len(self.texts)
        while count and self.is_padding(count - 1):
            count -= 1
        return count

    def is_added(self, number: int) -> bool:
        """Whether a token is found in a text before anything else."""
        kind = self.types[number]
        return kind in {PieceType.CONTROL, PieceType.USER_DEFINED} or (
            kind == PieceType.UNKNOWN and self.model != "gpt2"
        )

    def id_of(self, role: str) -> int | None:
        """Return the id of a special token, None where the file names none that exists."""
        number = self.get(ID_KEYS[role])
        if number is None:
            number = _IDS.get(self.model, {}).get(role)
        return number if isinstance(number, int) and 0 <= number < len(self.texts) else None

    def text_of(self, role: str) -> str | None:
        """Return the text of a special token."""
        number = self.id_of(role)
        return None if number is None else self.texts[number]

    def adds(self, role: str) -> bool | None:
        """Return whether a special token is put around a text, None where nobody says."""
        found = self.get(f"add_{role}_token")
        if isinstance(found, bool):
            return found
        rules = rules_of_name(self.pre)
        if role == "bos" and self.model == "gpt2" and rules is not None:
            return rules.adds_bos or None
        return (_ADDS_BOS if role == "bos" else _ADDS_EOS).get(self.model)
