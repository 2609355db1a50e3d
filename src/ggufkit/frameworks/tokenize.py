"""Split a text into tokens as llama.cpp does, and turn tokens into text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ggufkit.conversion.tokenizer.keys import VocabularyKeys
from ggufkit.errors import ValueTypeError
from ggufkit.frameworks.token_pieces import TokenPieces
from ggufkit.frameworks.tokenizer import tokenizer
from ggufkit.models.any_model import AnyModel, opened


@dataclass(frozen=True)
class TokenizedText:
    """The tokens of a text: their ids, and the bytes that each stands for.

    A piece may be a part of a character, so that only all pieces together are text.
    """

    ids: tuple[int, ...]
    pieces: tuple[bytes, ...]

    def __len__(self) -> int:
        """Return the number of tokens."""
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
        ids = tokenizer(source).encode(text, add_special_tokens=add_special).ids
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
