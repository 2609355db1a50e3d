"""The model as checks read it, and the faults that they return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from ggufkit.checks.requirements import Requirements, requirements
from ggufkit.format.metadata import Encoded, Metadata
from ggufkit.format.values import whole_number
from ggufkit.models.layers import BLOCK
from ggufkit.models.model import PROJECTOR, Model, Tensor

ARCHITECTURE: Final = "general.architecture"
TOKENS: Final = "tokenizer.ggml.tokens"
EMBEDDING: Final = "token_embd.weight"
NO_TOKENS: Final = ("no_vocab", "none")  # kinds of tokenizer that have no tokens


@dataclass(frozen=True)
class Violation:
    """A broken rule: at the value of `key`, or at the tensor `tensor`."""

    rule: str
    details: Mapping[str, object]
    key: str = ""
    tensor: str = ""


def at_key(rule: str, key: str, **details: object) -> Violation:
    """Return a fault of a key; the message names the key."""
    return Violation(rule, {"key": key, **details}, key=key)


def at_tensor(rule: str, tensor: Tensor, **details: object) -> Violation:
    """Return a fault of a tensor, named `name` in the message."""
    return Violation(rule, {"name": tensor.name, **details}, tensor=tensor.name)


@dataclass(frozen=True)
class ModelView:
    """A model as the rules read it."""

    model: Model

    @property
    def metadata(self) -> Metadata:
        """The keys of the model."""
        return self.model.metadata

    @cached_property
    def layers(self) -> int:
        """The number of layers that have tensors, counted from the first."""
        matches = (BLOCK.match(name) for name in self.model.tensors)
        return max((int(match[1]) + 1 for match in matches if match), default=0)

    def text(self, key: str) -> str:
        """Return the text of a key, "" if it is missing or not a text."""
        value = self.metadata.get(key, "")
        return value if isinstance(value, str) else ""

    def number(self, key: str) -> int | None:
        """Return the integer of a key, None if it is missing or not an integer."""
        return whole_number(self.metadata.get(key))

    def size(self, name: str, otherwise: int | None = 0) -> int | None:
        """Return the number of a hyperparameter; None if it is not an integer.

        A missing hyperparameter counts as `otherwise`, as in llama.cpp.
        """
        key = self.own(name)
        return self.number(key) if key in self.metadata else otherwise

    def count(self, key: str) -> int | None:
        """Return the number of elements of an array, None for other values."""
        if key not in self.metadata or not self.metadata.type_name(key).startswith("array"):
            return None
        entry = self.metadata.entry(key)
        if isinstance(entry, Encoded):
            return entry.count
        return len(entry) if not isinstance(entry, bool | np.generic) else None

    def own(self, name: str) -> str:
        """Return the key of a hyperparameter."""
        return f"{self.architecture}.{name}"

    @property
    def ahead(self) -> int:
        """The number of blocks for multi-token prediction, at the end."""
        return self.number(self.own("nextn_predict_layers")) or 0

    @property
    def embedding(self) -> tuple[int, ...]:
        """The shape of the embedding, empty if it is missing."""
        tensors = self.model.tensors
        return tensors[EMBEDDING].shape if EMBEDDING in tensors else ()

    @property
    def tokens(self) -> int | None:
        """The number of tokens, None if it is unknown."""
        if self.text("tokenizer.ggml.model") in NO_TOKENS:
            return self.size("vocab_size")
        return self.count(TOKENS)

    @property
    def architecture(self) -> str:
        """The architecture that the file names."""
        return self.text(ARCHITECTURE)

    @property
    def hyperparameters(self) -> list[str]:
        """The keys of the architecture."""
        prefix = f"{self.architecture}."
        return [key for key in self.metadata if self.architecture and key.startswith(prefix)]

    @property
    def requirements(self) -> Requirements | None:
        """llama.cpp's requirements of the architecture."""
        return requirements(self.architecture)

    @property
    def is_language_model(self) -> bool:
        """Whether this claims to be a model or vocabulary that llama.cpp loads."""
        if self.text("general.type") not in ("", "model") or self.architecture == PROJECTOR:
            return False
        is_whole = "tokenizer.ggml.model" in self.metadata or EMBEDDING in self.model.tensors
        return bool(self.architecture) and is_whole
