"""What llama.cpp demands of a model before it loads it: `demands.toml`, asked by architecture."""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

# Demanded of every architecture.
_OF_ALL: Final = ("context_length", "embedding_length", "block_count")
# Read with a type of their own, though not demanded.
_READ: Final = (
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "expert_count",
    "expert_used_count",
    "feed_forward_length",
    "rope.dimension_count",
    "rope.freq_base",
    "vocab_size",
)


@dataclass(frozen=True)
class TensorDemand:
    """A tensor that must be there: `shape` is in words, and {i} in `name` is every block.

    A dense one is asked for only where there are no experts.
    """

    name: str
    shape: tuple[str, ...]
    is_dense: bool


@dataclass(frozen=True)
class Demands:
    """What an architecture asks for: keys below its name, those read at all, and tensors."""

    keys: tuple[str, ...]
    read: frozenset[str]
    tensors: tuple[TensorDemand, ...]


@functools.cache
def demands(architecture: str) -> Demands | None:
    """Return what llama.cpp demands of an architecture, None if it does not know it."""
    table = _table()
    if architecture not in table["architectures"]:
        return None
    own = tuple(key for key, who in table["keys"].items() if architecture in who)
    tensors = tuple(
        TensorDemand(row["name"], tuple(row["shape"]), row.get("dense", False))
        for row in table["tensors"]
        if architecture in row["of"]
    )
    return Demands((*_OF_ALL, *own), frozenset((*_OF_ALL, *_READ, *own)), tensors)


@functools.cache
def _table() -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib  # noqa: PLC0415 (dear, and most runs need none)
    else:
        import tomli as tomllib  # noqa: PLC0415
    text = (resources.files("ggufkit") / "demands.toml").read_text("utf-8")
    table: dict[str, Any] = tomllib.loads(text)
    return table
