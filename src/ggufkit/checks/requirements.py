"""llama.cpp's requirements on a model, by architecture, from `requirements.toml`."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

# Required by every architecture.
_OF_ALL: Final = ("context_length", "embedding_length", "block_count")
# The item types of arrays that llama.cpp accepts where it reads numbers of a type.
_ITEMS: Final = {"uint32": {"bool", "uint32", "int32"}}


@dataclass(frozen=True)
class TensorRequirement:
    """A required tensor: `shape` is in words, and {i} in `name` is every block.

    The shape is empty if words cannot describe it. A dense tensor is required only in models
    without experts, and any tensor only if none is called `unless`.
    """

    name: str
    shape: tuple[str, ...]
    is_dense: bool
    unless: str


@dataclass(frozen=True)
class Requirements:
    """The requirements of an architecture: keys under its name, their types, and tensors.

    If it `has_equal_heads`, heads of keys and values have one length; if it `rotates_whole_heads`,
    the number of rotated dimensions is the length of a head.
    """

    keys: tuple[str, ...]
    types: Mapping[str, str]
    arrays: frozenset[str]
    has_equal_heads: bool
    rotates_whole_heads: bool
    tensors: tuple[TensorRequirement, ...]

    def expected(self, key: str, actual: str) -> str:
        """Return llama.cpp's type for a key: `actual` if accepted, or if no type is known."""
        expected = self.types.get(key, actual)
        item = actual.removeprefix("array[").removesuffix("]")
        if item == actual or key not in self.arrays or expected == actual:
            return expected
        return actual if item in _ITEMS.get(expected, {expected}) else f"array[{expected}]"


@functools.cache
def requirements(architecture: str) -> Requirements | None:
    """Return llama.cpp's requirements of an architecture, None if it does not know it."""
    table = _table()
    if architecture not in table["architectures"]:
        return None
    own = tuple(key for key, who in table["keys"].items() if architecture in who)
    tensors = tuple(
        TensorRequirement(
            row["name"], tuple(row["shape"]), row.get("dense", False), row.get("unless", "")
        )
        for row in table["tensors"]
        if architecture in row["of"]
    )
    others = (key for key, who in table["optional"].items() if architecture in who)
    kinds = {key: name for name, keys in table["types"].items() for key in keys}
    kinds_read = {key: kinds.get(key, "uint32") for key in (*table["common"], *own, *others)}
    return Requirements(
        keys=(*_OF_ALL, *own),
        types=kinds_read,
        arrays=frozenset(table["arrays"]),
        has_equal_heads=architecture in table["equal_heads"],
        rotates_whole_heads=architecture in table["whole_rope"],
        tensors=tensors,
    )


def tokenizers() -> list[str]:
    """Return the kinds of tokenizers that llama.cpp knows."""
    names: list[str] = _table()["tokenizers"]
    return names


def pre_tokenizers() -> list[str]:
    """Return the names of pre-tokenizers that llama.cpp knows."""
    names: list[str] = _table()["pre_tokenizers"]
    return names


@functools.cache
def _table() -> dict[str, Any]:
    import ggufkit._toml as _toml  # noqa: PLC0415 (slow to import, and most runs need none)

    text = (resources.files("ggufkit.checks") / "requirements.toml").read_text("utf-8")
    table: dict[str, Any] = _toml.loads(text)
    return table
