"""A model on the page, with what is computed once and kept: names, tokens, the tokenizer."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ggufkit.errors import CheckpointError, MissingKeyError
from ggufkit.format.values import Strings
from ggufkit.models.model import Model, Tensor

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from ggufkit.frameworks.token_pieces import TokenPieces

TOKENS = "tokenizer.ggml.tokens"
MERGES = "tokenizer.ggml.merges"


@dataclass
class ShownModel:
    """An open model and the name by which the user called it.

    Keys and tensors have numbers, in file order: names in a file may be too long for a URL.
    """

    name: str
    model: Model
    lock: threading.RLock = field(default_factory=threading.RLock)

    @cached_property
    def keys(self) -> list[str]:
        """The metadata keys by number."""
        return list(self.model.metadata)

    @cached_property
    def tensor_names(self) -> list[str]:
        """The names of the tensors by number."""
        return list(self.model.tensors)

    @cached_property
    def number_of(self) -> dict[str, int]:
        """The number of each tensor by its name."""
        return {name: number for number, name in enumerate(self.tensor_names)}

    @cached_property
    def tensor_rows(self) -> list[tuple[int, Tensor]]:
        """Every tensor with its number."""
        return list(enumerate(self.model.tensors.values()))

    def tensor(self, number: int) -> Tensor:
        """Return a tensor by its number; MissingKeyError for a number that is too large."""
        return self.model.tensors[_at(self.tensor_names, number, "tensor")]

    def key(self, number: int) -> str:
        """Return a key by its number; MissingKeyError for a number that is too large."""
        return _at(self.keys, number, "metadata key")

    def tokens(self) -> list[str]:
        """Return the texts of all tokens, empty without a vocabulary."""
        return self._texts(TOKENS)

    def merges(self) -> list[str]:
        """Return the merges of the tokenizer, empty if it has none."""
        return self._texts(MERGES)

    def _texts(self, key: str) -> list[str]:
        with self.lock:
            if key not in self._decoded:
                found = self.model.metadata.get(key)
                self._decoded[key] = found.tolist() if isinstance(found, Strings) else []
            return self._decoded[key]

    @cached_property
    def _decoded(self) -> dict[str, list[str]]:
        return {}

    def kept(self, key: tuple[str, int], make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return a document made before, or make it now; others are not kept waiting."""
        with self.lock:
            if key in self._documents:
                return self._documents[key]
        made = make()
        with self.lock:
            return self._documents.setdefault(key, made)

    @cached_property
    def _documents(self) -> dict[tuple[str, int], dict[str, Any]]:
        return {}

    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer, built once; raises as `ggufkit.tokenizer` does."""
        with self.lock:
            return self._tokenizer

    def piece(self, number: int) -> bytes:
        """Return the bytes that a token stands for, or its text where ggufkit cannot decode it."""
        with self.lock, contextlib.suppress(CheckpointError):
            return self._pieces.piece(number)
        return self.tokens()[number].encode("utf-8", "surrogateescape")

    @cached_property
    def _pieces(self) -> TokenPieces:
        from ggufkit.conversion.tokenizer.keys import VocabularyKeys  # noqa: PLC0415 (as below)
        from ggufkit.frameworks.token_pieces import TokenPieces  # noqa: PLC0415 (as below)

        return TokenPieces(VocabularyKeys(self.model.metadata))

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        from ggufkit.frameworks.tokenizer import tokenizer  # noqa: PLC0415 (the first view has none)

        return tokenizer(self.model)


def _at(names: list[str], number: int, what: str) -> str:
    if not 0 <= number < len(names):
        raise MissingKeyError(
            f"the model has no {what} number {number}", remedy="Open the page again"
        )
    return names[number]
