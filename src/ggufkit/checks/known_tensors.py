"""List every tensor that llama.cpp may load, by architecture, from `known_tensors.txt`."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Final

_NUMBER: Final = re.compile(r"(?<=\.)\d+(?=\.)")
_UNKNOWN: Final = "?"
_CONDITION: Final = re.compile(r"([-+]?)(!?)(.+)")
_EXPERTS: Final = {"": None, "-": False, "+": True}


@dataclass(frozen=True)
class KnownTensor:
    """A tensor that llama.cpp may load.

    `shape` is in words, and empty if words cannot describe it. `has_experts` is true if only models
    with experts have the tensor, false if only those without, None if both. `is_required` is for
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
    text = (resources.files("ggufkit.checks") / "known_tensors.txt").read_text("utf-8")
    tensors: dict[str, KnownTensor] = {}
    for line in text.splitlines():
        name, shape, *architectures = line.split()
        parts = _CONDITION.fullmatch(name)
        if name != "#" and parts and architecture in architectures:
            words = () if shape == _UNKNOWN else tuple(shape.split(","))
            tensors[any_block(parts[3])] = KnownTensor(words, _EXPERTS[parts[1]], bool(parts[2]))
    return tensors
