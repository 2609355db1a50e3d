"""What keeps an edited model from loading in llama.cpp, told before it is written.

A rule looks at the model alone; what was wrong before an edit is no obstacle to it. Sources:
`llama-model-loader.cpp`, which insists on exact types of values and lengths of arrays, and
`llama-vocab.cpp`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from ggufkit.metadata import Encoded, Metadata
from ggufkit.model import Model
from ggufkit.types import SPLIT_TYPES
from ggufkit.values import CANONICAL

ARCHITECTURE: Final = "general.architecture"
ALIGNMENT: Final = "general.alignment"
TOKENS: Final = "tokenizer.ggml.tokens"
EMBEDDING: Final = "token_embd.weight"
_LAYER: Final = re.compile(r"blk\.(\d+)\.")
_ID: Final = re.compile(r"tokenizer\.ggml\.\w+_token_id")
# One element for each token.
_PER_TOKEN: Final = ("tokenizer.ggml.scores", "tokenizer.ggml.token_type")
# Either one number, or an array with one for each layer.
_PER_LAYER: Final = ("attention.head_count", "attention.head_count_kv", "feed_forward_length")
_TYPES: Final = (
    (re.compile(r"general\.architecture|tokenizer\.ggml\.(model|pre)"), "string"),
    (re.compile(r"tokenizer\.chat_template"), "string"),
    (re.compile(r"tokenizer\.ggml\.(tokens|merges)"), "array[string]"),
    (re.compile(r"tokenizer\.ggml\.token_type"), "array[int32]"),
    (re.compile(r"tokenizer\.ggml\.add_\w+"), "bool"),
    (_ID, "uint32"),
)
# Of hyperparameters, which are numbers of two types only.
_WANTED: Final = {
    "float64": "float32",
    **dict.fromkeys(("uint8", "int8", "uint16", "int16", "int32", "uint64", "int64"), "uint32"),
}
_NEEDED: Final = ("tokenizer.ggml.model", TOKENS, ARCHITECTURE)


@dataclass(frozen=True)
class _Seen:
    """A model as the rules look at it."""

    metadata: Metadata
    model: Model

    def text(self, key: str) -> str:
        value = self.metadata.get(key, "")
        return value if isinstance(value, str) else ""

    def number(self, key: str) -> int | None:
        value = self.metadata.get(key, None)
        return int(value) if isinstance(value, np.integer) else None

    def count(self, key: str) -> int | None:
        """Return the number of elements of an array, None for what is none."""
        if key not in self.metadata or not self.metadata.type_name(key).startswith("array"):
            return None
        entry = self.metadata.entry(key)
        if isinstance(entry, Encoded):
            return entry.count
        return len(entry) if not isinstance(entry, bool | np.generic) else None

    @property
    def embedding(self) -> tuple[int, ...]:
        """The shape of the embedding, of no axes where there is none."""
        tensors = self.model.tensors
        return tensors[EMBEDDING].shape if EMBEDDING in tensors else ()

    @property
    def architecture(self) -> str:
        return self.text(ARCHITECTURE)

    @property
    def hyperparameters(self) -> list[str]:
        prefix = f"{self.architecture}."
        return [key for key in self.metadata if self.architecture and key.startswith(prefix)]

    @property
    def layers(self) -> int:
        found = (_LAYER.match(name) for name in self.model.tensors)
        return max((int(each[1]) + 1 for each in found if each), default=0)


def obstacles(before: Model, after: Model) -> list[str]:
    """Return what an edit breaks, one sentence each; nothing where the model still loads."""
    old, new = _Seen(before.metadata, before), _Seen(after.metadata, after)
    known = set(_wrong_with(old))
    broken = [sentence for sentence in _wrong_with(new) if sentence not in known]
    return [*_lost(old, new), *broken]


def _lost(old: _Seen, new: _Seen) -> Iterator[str]:
    """Look at what may not change or go at all."""
    for key in (ALIGNMENT, *SPLIT_TYPES):
        if _bytes(old, key) != _bytes(new, key):
            why = "all tensors move" if key == ALIGNMENT else "the shards no longer fit together"
            yield f"{key} changes, so that {why}"
    for key in (*_NEEDED, *old.hyperparameters):
        if key in old.metadata and key not in new.metadata:
            yield f"{key} is gone, which llama.cpp may need"


def _bytes(seen: _Seen, key: str) -> bytes:
    return seen.metadata.arranged([key] if key in seen.metadata else []).encode(CANONICAL)


def _wrong_with(seen: _Seen) -> Iterator[str]:
    for rule in _RULES:
        yield from rule(seen)


def _about_architecture(seen: _Seen) -> Iterator[str]:
    if seen.architecture and seen.metadata and not seen.hyperparameters:
        yield f"there are no keys of the architecture {seen.architecture!r}"


def _about_types(seen: _Seen) -> Iterator[str]:
    for key in seen.metadata:
        found = seen.metadata.type_name(key)
        wanted = next((name for form, name in _TYPES if form.fullmatch(key)), found)
        if found != wanted:
            yield f"{key} is of type {found}, and llama.cpp insists on {wanted}"
        if found == "array[array]":
            yield f"{key} is an array of arrays, which llama.cpp refuses"
    for key in seen.hyperparameters:
        found = seen.metadata.type_name(key)
        if found in _WANTED:
            yield f"{key} is of type {found}, and llama.cpp insists on {_WANTED[found]}"


def _about_tokens(seen: _Seen) -> Iterator[str]:
    tokens = seen.count(TOKENS)
    if tokens is None:
        return
    if seen.embedding and seen.embedding[0] != tokens:
        yield f"the length of {TOKENS} is {tokens}, but {EMBEDDING} has {seen.embedding[0]} rows"
    for key in _PER_TOKEN:
        count = seen.count(key)
        if count not in (None, tokens):
            yield f"the length of {key} is {count}, but that of {TOKENS} is {tokens}"
    for key in filter(_ID.fullmatch, seen.metadata):
        number = seen.number(key)
        if number is not None and not 0 <= number < tokens:
            yield f"{key} is {number}, but there are {tokens} tokens"


def _about_layers(seen: _Seen) -> Iterator[str]:
    key = f"{seen.architecture}.block_count"
    blocks = seen.number(key)
    if blocks is None:
        return
    if seen.layers not in (0, blocks):
        yield f"{key} is {blocks}, but there are tensors of {seen.layers} blocks"
    for name in _PER_LAYER:
        array = f"{seen.architecture}.{name}"
        count = seen.count(array)
        if count not in (None, blocks):
            yield f"the length of {array} is {count}, but {key} is {blocks}"


def _about_width(seen: _Seen) -> Iterator[str]:
    key = f"{seen.architecture}.embedding_length"
    width = seen.number(key)
    if width is not None and seen.embedding and seen.embedding[-1] != width:
        yield f"{key} is {width}, but the rows of {EMBEDDING} have {seen.embedding[-1]} elements"


_RULES: Final[tuple[Callable[[_Seen], Iterator[str]], ...]] = (
    _about_architecture,
    _about_types,
    _about_tokens,
    _about_layers,
    _about_width,
)
