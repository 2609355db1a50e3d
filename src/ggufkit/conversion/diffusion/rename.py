"""Gives tensors with diffusers' names those of the publisher's checkpoint, which programs read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from ggufkit.conversion.tensors.moves import concat, renamed, reshape, take
from ggufkit.diffusion.architecture import architectures
from ggufkit.diffusion.diffusers_names import DiffusersNames
from ggufkit.errors import CheckpointError, brief
from ggufkit.models.model import Tensor

_BLOCK: Final = re.compile(r"(\w+)\.(\d+)\.")


def with_published_names(tensors: list[Tensor]) -> list[Tensor]:
    """Return tensors with the publisher's names; those that have them already stay as they are.

    Raises CheckpointError for names that the model does not have, and for missing parts.
    """
    held = {tensor.name: tensor for tensor in tensors}
    known = [each.diffusers for each in architectures().values() if each.diffusers]
    names = max(known, key=lambda each: each.matched(held))
    return _published(tensors, names) if names.matched(held) else tensors


def _published(tensors: Iterable[Tensor], names: DiffusersNames) -> list[Tensor]:
    groups: dict[str, dict[int, Tensor]] = {}
    counts: dict[str, int] = {}
    problems = []
    for tensor in tensors:
        place = names.place(tensor.name)
        if place is None:
            problems.append(f"{brief(tensor.name)} is unknown to this model")
        elif place.part in groups.setdefault(place.name, {}):
            problems.append(f"{brief(tensor.name)} is a second {place.name}")
        else:
            groups[place.name][place.part] = tensor
            counts[place.name] = place.parts
    problems += [
        f"{name} lacks a part" for name, parts in groups.items() if len(parts) < counts[name]
    ]
    if problems:
        raise CheckpointError(
            "the names of diffusers cannot be translated",
            problems,
            remedy="Use the checkpoint of the publisher, or the file that ComfyUI loads",
        )
    last = _last_blocks(groups)
    return [_made(name, parts, names, last) for name, parts in groups.items()]


def _last_blocks(names: Iterable[str]) -> dict[str, int]:
    """Return the highest number of the blocks by their names' beginning."""
    last: dict[str, int] = {}
    for name in names:
        if block := _BLOCK.match(name):
            last[block[1]] = max(int(block[2]), last.get(block[1], 0))
    return last


def _made(
    name: str, parts: Mapping[int, Tensor], names: DiffusersNames, last: Mapping[str, int]
) -> Tensor:
    ordered = [parts[part] for part in sorted(parts)]
    tensor = renamed(ordered[0], name) if len(ordered) == 1 else concat(name, ordered)
    if names.is_swapped(name, last.get(name.partition(".")[0], -1)):
        if not tensor.shape or tensor.shape[0] % 2:
            raise CheckpointError(f"{name} of shape {tensor.shape} has no halves")
        rows = np.roll(np.arange(tensor.shape[0]), tensor.shape[0] // 2)
        tensor = take(tensor, rows, tensor.shape)
    shape = names.shape(name)
    return reshape(tensor, shape) if shape else tensor
