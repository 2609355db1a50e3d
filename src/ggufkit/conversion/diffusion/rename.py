"""Renames and reshapes tensors from diffusers' names and shapes to the publisher's, and back."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np

from ggufkit.conversion.tensors.moves import concat, renamed, reshape, take
from ggufkit.diffusion.architecture import (
    Shapes,
    architecture_of,
    architectures,
    prefix_of,
    recognize,
)
from ggufkit.diffusion.diffusers_names import DiffusersNames, shape_of
from ggufkit.diffusion.pipeline_facts import SHAPE_KEY
from ggufkit.errors import CheckpointError, brief
from ggufkit.format.coerce import plain
from ggufkit.format.metadata import Metadata
from ggufkit.models.model import Model, Tensor


def with_original_shapes(model: Model) -> list[Tensor]:
    """Return the plain tensors of a model, whose keys `comfy.gguf.orig_shape.*` give their shapes.

    Raises CheckpointError for a key that contradicts its tensor.
    """
    return [
        reshape(tensor, original_shape(tensor, model.metadata)) for tensor in model.tensors.values()
    ]


def original_shape(tensor: Tensor, metadata: Metadata) -> tuple[int, ...]:
    """Return the shape of a tensor in the checkpoint: its own, if no key gives another.

    Raises CheckpointError for a key that contradicts the tensor.
    """
    key = f"{SHAPE_KEY}{tensor.name}"
    if key not in metadata:
        return tensor.shape
    shape = plain(metadata[key])
    is_shape = isinstance(shape, list) and all(type(n) is int and n > 0 for n in shape)
    if not is_shape or math.prod(shape) != tensor.elements:
        raise CheckpointError(
            f"the shape {brief(shape)} in {SHAPE_KEY}* does not fit {brief(tensor.name)} of shape "
            f"{tensor.shape}"
        )
    return tuple(shape)


_BLOCK: Final = re.compile(r"(\w+)\.(\d+)\.")


def with_published_names(tensors: list[Tensor]) -> list[Tensor]:
    """Return tensors with the publisher's names; tensors that have them stay as they are.

    Raises CheckpointError for names that the model does not have, and for missing parts.
    """
    by_name = {tensor.name: tensor for tensor in tensors}
    spellings = [arch.diffusers for arch in architectures().values() if arch.diffusers]
    names = max(spellings, key=lambda own: own.matched(by_name))
    return _published(tensors, names) if names.matched(by_name) else tensors


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
    last = last_blocks(groups)
    return [_renamed(name, parts, names, last) for name, parts in groups.items()]


def last_blocks(names: Iterable[str]) -> dict[str, int]:
    """Return the highest number of the blocks by their names' beginning."""
    last: dict[str, int] = {}
    for name in names:
        if block := _BLOCK.match(name):
            last[block[1]] = max(int(block[2]), last.get(block[1], 0))
    return last


def _renamed(
    name: str, parts: Mapping[int, Tensor], names: DiffusersNames, last: Mapping[str, int]
) -> Tensor:
    ordered = [parts[part] for part in sorted(parts)]
    tensor = renamed(ordered[0], name) if len(ordered) == 1 else concat(name, ordered)
    if names.is_swapped(name, last):
        tensor = swapped(tensor)
    shape = shape_of(name, names.shapes)
    return reshape(tensor, shape) if shape else tensor


def swapped(tensor: Tensor) -> Tensor:
    """Return a tensor whose halves change places."""
    if not tensor.shape or tensor.shape[0] % 2:
        raise CheckpointError(f"{tensor.name} of shape {tensor.shape} has no halves")
    rows = np.roll(np.arange(tensor.shape[0]), tensor.shape[0] // 2)
    return take(tensor, rows, tensor.shape)


def with_diffusers_names(model: Model) -> list[Tensor]:
    """Return the tensors of a diffusion model of plain types with the names of diffusers.

    Raises CheckpointError if they are unknown.
    """
    prefix = prefix_of(model.tensors)
    tensors = {
        name: renamed(tensor, name)
        for tensor in with_original_shapes(model)
        if (name := tensor.name.removeprefix(prefix)) != tensor.name or not prefix
    }
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    general = model.metadata.text("general.architecture", "")
    architecture = architecture_of(general, shapes) if general else recognize(shapes)
    title = architecture.title if architecture else "this file"
    names = architecture.diffusers if architecture else None
    if names is None:
        raise CheckpointError(
            f"ggufkit does not know the names that diffusers gives the tensors of {title}",
            remedy="Leave out `--names diffusers`",
        )
    if problems := [f"{brief(n)} has no name there" for n in tensors if not names.sources(n)]:
        raise CheckpointError(f"{title} has other tensors than in diffusers", problems)
    last = last_blocks(tensors)
    return [part for t in tensors.values() for part in _diffusers_parts(t, names, last, shapes)]


def _diffusers_parts(
    tensor: Tensor, names: DiffusersNames, last: Mapping[str, int], shapes: Shapes
) -> Iterator[Tensor]:
    name, sources = tensor.name, names.sources(tensor.name)
    if names.is_swapped(name, last):
        tensor = swapped(tensor)
    shape = shape_of(name, names.diffusers_shapes)
    tensor = reshape(tensor, shape) if shape else tensor
    if len(sources) == 1:
        yield renamed(tensor, sources[0])
        return
    start = 0
    for source, rows in zip(sources, rows_of_parts(name, len(sources), shapes), strict=True):
        part = take(tensor, np.arange(start, start + rows), (rows, *tensor.shape[1:]))
        yield renamed(part, source)
        start += rows


def rows_of_parts(name: str, parts: int, shapes: Shapes) -> tuple[int, ...]:
    """Return the rows of the parts that a publisher's tensor is joined from.

    Several parts are k and v; or q, k and v, which have a row for each column (k and v of grouped
    queries fewer), and perhaps the first matrix of an MLP.
    """
    rows = sum(shapes[name][:1])
    if parts < len("qkv"):
        return (rows // parts,) * parts
    width = shapes.get(f"{name.rpartition('.')[0]}.weight", (0, rows // parts))[-1]
    if parts == len("qkv"):
        return (width, (rows - width) // 2, (rows - width) // 2)
    return (width, width, width, rows - 3 * width)
