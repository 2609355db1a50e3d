"""Split a text into tokens as llama.cpp does, and turn tokens into text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from ggufkit.conversion.tokenizer.keys import VocabularyKeys
from ggufkit.conversion.tokenizer.sentencepiece_model import SPACE, PieceType
from ggufkit.conversion.tokenizer.token_text import BYTE_OF, BYTE_TOKEN
from ggufkit.conversion.tokenizer.tokenizer_json import OF_CHARACTERS
from ggufkit.errors import CheckpointError, ValueTypeError
from ggufkit.frameworks.llama_tokens import found_by_text
from ggufkit.frameworks.tokenizer import errors_of_library, tokenizer
from ggufkit.models.any_model import AnyModel, opened

_KINDS: Final = ("llama", "bert", "t5", "gpt2", "gemma4")
_KEEPING_SPACES: Final = frozenset({"sarvam-moe"})  # pre-tokenizers over characters
_AS_WRITTEN: Final = frozenset(
    (PieceType.CONTROL, PieceType.UNKNOWN, PieceType.USER_DEFINED)
)  # their text is what they stand for
_GAPS: Final = (
    (re.compile(rb" (?=[?!.,])"), b""),
    (re.compile(rb" ' "), b"'"),
    (re.compile(rb" (?='(?:[sm]|re|ve))"), b""),
)  # spaces that llama.cpp removes one after the other, where a tokenizer cleans them


class TokenPieces:
    """The bytes that each token stands for, by id, as llama.cpp makes them.

    Source: `token_to_piece` and `detokenize` in llama.cpp's `llama-vocab.cpp`.
    """

    def __init__(self, keys: VocabularyKeys) -> None:
        """Take the keys of a vocabulary; CheckpointError for a kind without known pieces."""
        if keys.model not in _KINDS:
            raise CheckpointError(
                f"the tokens of a tokenizer of the kind {keys.model!r} cannot be decoded",
                remedy=f"ggufkit decodes {', '.join(_KINDS)}",
            )
        self._keys = keys

    def __len__(self) -> int:
        return len(self._keys.texts)

    def piece(self, number: int) -> bytes:
        """Return the bytes of a token, perhaps a part of a character; ValueTypeError if none."""
        if not 0 <= number < len(self):
            raise ValueTypeError(
                f"the vocabulary has no token {number}", remedy=f"Use ids from 0 to {len(self) - 1}"
            )
        text, kind = self._keys.texts[number], self._keys.types[number]
        if number in self._controls or kind in _AS_WRITTEN:
            return _utf8(text)
        if kind == PieceType.BYTE:
            match = BYTE_TOKEN.fullmatch(text)
            return bytes([int(match[1], 16)]) if match else b""
        if kind != PieceType.NORMAL:
            return b""
        return _of_bytes(text) if self._is_byte_level else _utf8(text.replace(SPACE, " "))

    def text(self, numbers: Iterable[int]) -> bytes:
        """Return the text of tokens, special tokens included; the bytes may not be valid UTF-8."""
        pieces = [self.piece(number) for number in numbers]
        if pieces and self._adds_space:
            pieces[0] = pieces[0].removeprefix(b" ")
        joined = b"".join(pieces)
        for gap, instead in _GAPS if self._cleans_spaces else ():
            joined = gap.sub(instead, joined)
        return joined

    @cached_property
    def _controls(self) -> frozenset[int]:
        """The tokens that llama.cpp takes for control tokens by their text."""
        return frozenset(found_by_text(self._keys))

    @property
    def _is_byte_level(self) -> bool:
        return self._keys.model == "gpt2" and self._keys.pre not in OF_CHARACTERS

    @property
    def _cleans_spaces(self) -> bool:
        if self._keys.pre in _KEEPING_SPACES:
            return False
        return self._keys.model in {"bert", "gemma4"} or self._keys.cleans_spaces

    @property
    def _adds_space(self) -> bool:
        value = self._keys.get("add_space_prefix")
        return self._keys.model == "llama" if value is None else bool(value)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _of_bytes(text: str) -> bytes:
    """Return the bytes that the characters of GPT-2's alphabet stand for."""
    if all(char in BYTE_OF for char in text):
        return bytes(BYTE_OF[char] for char in text)
    return b"".join(
        bytes([BYTE_OF[char]])
        if char in BYTE_OF
        else b"[UNK_BYTE_0x%s%s]" % (_utf8(char).hex().encode(), _utf8(text))
        for char in text
    )


@dataclass(frozen=True)
class TokenizedText:
    """The tokens of a text: their ids, and the bytes that each stands for.

    A piece may be a part of a character, so that only all pieces together are text.
    """

    ids: tuple[int, ...]
    pieces: tuple[bytes, ...]

    def __len__(self) -> int:
        return len(self.ids)


def tokenize(model: AnyModel, text: str, *, add_special: bool = True) -> TokenizedText:
    """Return the tokens of a text: the ids that llama.cpp gives.

    Special tokens within the text are recognized. `add_special` adds those that llama.cpp adds,
    such as the token for the beginning of a text. For many texts, keep a `ggufkit.tokenizer`.
    Raises as `ggufkit.tokenizer` does, and ValueTypeError for a text that is not valid Unicode.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueTypeError(
            f"the text is not valid Unicode: {error.reason} at character {error.start}",
            remedy="Decode it as UTF-8 first",
        ) from None
    with opened(model) as source:
        splitter = tokenizer(source)
        with errors_of_library():
            ids = splitter.encode(text, add_special_tokens=add_special).ids
        pieces = TokenPieces(VocabularyKeys(source.metadata))
        return TokenizedText(tuple(ids), tuple(map(pieces.piece, ids)))


def detokenize(model: AnyModel, ids: Iterable[int]) -> str:
    """Return the text of tokens, special tokens included, as llama.cpp does.

    Bytes that are not valid UTF-8 become the replacement character. Raises ValueTypeError for an id
    that the vocabulary lacks, CheckpointError for a model without a vocabulary.
    """
    with opened(model) as source:
        pieces = TokenPieces(VocabularyKeys(source.metadata))
        return pieces.text(ids).decode(errors="replace")
