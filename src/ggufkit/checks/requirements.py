"""What llama.cpp requires of a model of each architecture, from `requirements.toml`.

`known_tensors.txt` lists every tensor that it may load.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

# Required by every architecture.
_OF_ALL: Final = ("context_length", "embedding_length", "block_count")
# The item types of arrays that llama.cpp accepts where it reads numbers of a type.
_ITEMS: Final = {"uint32": {"bool", "uint32", "int32"}}
_NUMBER: Final = re.compile(r"(?<=\.)\d+(?=\.)")
_UNKNOWN: Final = "?"
_CONDITION: Final = re.compile(r"([-+]?)(!?)(.+)")
_EXPERTS: Final = {"": None, "-": False, "+": True}


@dataclass(frozen=True)
class TensorRequirement:
    """A required tensor; `{i}` in `name` stands for every block.

    A dense tensor is required only in models without experts, and a tensor with `unless` only if
    no tensor has that name.
    """

    name: str
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
        """Return the type that llama.cpp requires; `actual` if it accepts that or has no rule."""
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
        TensorRequirement(row["name"], row.get("dense", False), row.get("unless", ""))
        for row in (_parsed(text) for text in _sections()[1:] if f'"{architecture}"' in text)
    )
    others = (key for key, who in table["optional"].items() if architecture in who)
    types = {key: name for name, keys in table["types"].items() for key in keys}
    return Requirements(
        keys=(*_OF_ALL, *own),
        types={key: types.get(key, "uint32") for key in (*table["common"], *own, *others)},
        arrays=frozenset(table["arrays"]),
        has_equal_heads=architecture in table["equal_heads"],
        rotates_whole_heads=architecture in table["whole_rope"],
        tensors=tensors,
    )


def names_in_llama_cpp(kind: str) -> list[str]:
    """Return the "tokenizers", "pre_tokenizers" or "projector_types" that llama.cpp knows."""
    names: list[str] = _table()[kind]
    return names


@functools.cache
def _table() -> dict[str, Any]:
    """Return all tables except for the tensors."""
    return _parsed(_sections()[0])


@functools.cache
def _sections() -> list[str]:
    text = Path(__file__).with_name("requirements.toml").read_text("utf-8")
    return text.split("[[tensors]]")


def _parsed(text: str) -> dict[str, Any]:
    import ggufkit._toml as _toml  # noqa: PLC0415 (slow to import, and most runs need none)

    table: dict[str, Any] = _toml.loads(text)
    return table


@dataclass(frozen=True)
class KnownTensor:
    """A tensor that llama.cpp may load.

    `shape` is in words, and empty if words cannot describe it. `has_experts` is true if only models
    with experts have the tensor, false if only models without, None if both. `is_required` is for
    tensors of experts; `requirements.toml` lists all other required tensors.
    """

    shape: tuple[str, ...]
    has_experts: bool | None
    is_required: bool


def any_block(name: str) -> str:
    """Return a tensor's name with {i} instead of its block number."""
    return _NUMBER.sub("{i}", name)


@functools.cache
def known_tensors(architecture: str) -> Mapping[str, KnownTensor]:
    """Return the tensors of an architecture by their names, as `any_block` writes them."""
    text = Path(__file__).with_name("known_tensors.txt").read_text("utf-8")
    tensors: dict[str, KnownTensor] = {}
    for line in text.splitlines():
        name, shape, *architectures = line.split()
        parts = _CONDITION.fullmatch(name)
        if name != "#" and parts and architecture in architectures:
            words = () if shape == _UNKNOWN else tuple(shape.split(","))
            tensors[any_block(parts[3])] = KnownTensor(words, _EXPERTS[parts[1]], bool(parts[2]))
    return tensors
