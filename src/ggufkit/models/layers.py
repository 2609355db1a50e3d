"""Remove whole layers from a model: renumber tensors, and correct every key that counts layers.

llama-quantize's `--prune-layers` corrects only `block_count`; a model whose heads or widths differ
by layer then fails to load, or uses the values of other layers.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from ggufkit.errors import MissingKeyError, ShapeError, ValueTypeError, brief
from ggufkit.format.file_name import size_label
from ggufkit.format.metadata import Metadata
from ggufkit.format.values import Array, Arrays, Strings, TypedValue, whole_number
from ggufkit.models.model import Model, Tensor

BLOCK: Final = re.compile(r"blk\.(\d+)\.")  # how the name of a layer's tensor begins
# T5 numbers encoder and decoder layers separately. Layers of vision and audio ("v.blk.") are
# counted by other keys and stay.
LAYER_NAME: Final = re.compile(
    r"(?P<before>(?:enc\.|dec\.)?blk\.)(?P<number>\d{1,18})(?P<after>\..+)"
)
_LAYERS: Final = re.compile(r"(?P<first>\d{1,9})(?:-(?P<last>\d{1,9}))?")
MAX_LAYERS: Final = 1 << 16  # llama.cpp loads 512 (LLAMA_MAX_LAYERS); no real model has more

SIZE_LABEL: Final = "general.size_label"
_SIZE: Final = re.compile(r"(?P<experts>(?:\d+x)?)(?P<number>(?:\d+\.)?\d+)(?P<unit>[KMBTQ])")
_UNITS: Final = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12, "Q": 1e15}

# Keys after "<architecture>." that count layers: from the first on, or the last ones.
FIRST_LAYERS: Final = (
    "block_count",
    "decoder_block_count",
    "leading_dense_block_count",
    "hash_layer_count",
)
LAST_LAYERS: Final = "nextn_predict_layers"
LAST_OF_TRUNK: Final = "attention.shared_kv_layers"
COUNTING_LAYERS: Final = (*FIRST_LAYERS, LAST_LAYERS, LAST_OF_TRUNK)
# Arrays that can be as long as the number of layers but do not count by layer.
NOT_BY_LAYER: Final = ("rope.dimension_sections", "ple.", "adapter.", "target_layers")


def parse_layers(text: str) -> tuple[int, ...]:
    """Return the layers of a list such as "3,5-7"; ValueTypeError for anything else."""
    layers: set[int] = set()
    for part in text.split(","):
        match = _LAYERS.fullmatch(part.strip())
        first = int(match["first"]) if match else MAX_LAYERS
        last = int(match["last"] or first) if match else first
        if not first <= last < MAX_LAYERS:
            raise ValueTypeError(
                f"{text!r} is not a list of layers", remedy="Write it as 3,5-7, counting from 0"
            )
        layers.update(range(first, last + 1))
    return tuple(sorted(layers))


def layer_of(name: str) -> int | None:
    """Return the layer of a tensor, None if its name has none."""
    match = LAYER_NAME.fullmatch(name)
    return int(match["number"]) if match else None


def prune_layers(model: Model, layers: Iterable[int]) -> Model:
    """Return `model` without these layers (from 0); no tensor data is read.

    The remaining layers are renumbered in order. Keys that count layers and arrays with an item
    per layer are corrected. Raises MissingKeyError for a model without a block count, ShapeError
    for a layer that does not exist, or if none would be left.
    """
    removed = frozenset(layers)
    key, count = block_count(model.metadata)
    unknown = sorted(layer for layer in removed if not 0 <= layer < count)
    if unknown:
        raise ShapeError(
            f"the model has no layer {unknown[0]}", remedy=f"The model has layers 0 to {count - 1}"
        )
    if len(removed) == count:
        raise ShapeError("no layer would be left", remedy="Keep at least one layer")
    if not removed:
        return model
    tensors = [t for t in (_renumbered(t, removed) for t in model.tensors.values()) if t]
    prefix = key.removesuffix("block_count")
    return model.replace(metadata=_pruned(model.metadata, prefix, removed, count), tensors=tensors)


def resized(model: Model, before: Model) -> Model:
    """Return a model whose size label is reduced as its parameters are from `before`.

    llama-quantize leaves the label as it was, and so does `prune_layers`.
    """
    label = model.metadata.get(SIZE_LABEL)
    match = _SIZE.fullmatch(label) if isinstance(label, str) else None
    elements, whole = (sum(t.elements for t in m.tensors.values()) for m in (model, before))
    if match is None or elements == whole:
        return model
    changed = size_label(elements)
    if match["experts"]:
        number = float(match["number"]) * _UNITS[match["unit"]] * elements / whole
        changed = match["experts"] + size_label(round(number))
    return model.replace(metadata=model.metadata.updated({SIZE_LABEL: changed}))


def block_count(metadata: Metadata) -> tuple[str, int]:
    """Return the key that counts layers, and its number."""
    key = f"{metadata.text('general.architecture', '')}.block_count"
    number = metadata.integer(key, None)
    if number is None or not 0 < number <= MAX_LAYERS:
        problem = "missing" if number is None else brief(number)
        raise MissingKeyError(
            f"the number of layers is unknown: {key} is {problem}",
            remedy="Set general.architecture and the block count first",
        )
    return key, number


def _renumbered(tensor: Tensor, removed: frozenset[int]) -> Tensor | None:
    """Return a tensor under its new name, None if its layer was removed.

    Layers that the block count does not cover stay after all others.
    """
    match = LAYER_NAME.fullmatch(tensor.name)
    if match is None:
        return tensor
    number = int(match["number"])
    if number in removed:
        return None
    number -= sum(layer < number for layer in removed)
    return replace(tensor, name=f"{match['before']}{number}{match['after']}")


def keys_by_layer(metadata: Metadata) -> dict[str, TypedValue]:
    """Return the keys that count layers, or hold an item for each, and their typed values.

    Raises MissingKeyError for metadata without a block count.
    """
    key, count = block_count(metadata)
    prefix = key.removesuffix("block_count")
    counting = tuple(prefix + name for name in COUNTING_LAYERS)
    others = tuple(prefix + name for name in NOT_BY_LAYER)
    lengths = (count, _trunk(metadata, prefix, count))
    arrays: dict[str, TypedValue] = {}
    for key in metadata:
        if not key.startswith(prefix) or key.startswith(others):
            continue
        value = metadata.typed(key)
        if isinstance(value, np.ndarray | Strings | Arrays):
            is_by_layer = len(value) in lengths
        else:
            is_by_layer = key in counting
        if is_by_layer:
            arrays[key] = value
    return arrays


def _trunk(metadata: Metadata, prefix: str, count: int) -> int:
    return count - (whole_number(metadata.get(prefix + LAST_LAYERS)) or 0)


def _pruned(metadata: Metadata, prefix: str, removed: frozenset[int], count: int) -> Metadata:
    trunk = _trunk(metadata, prefix, count)
    changes: dict[str, object] = {}
    for key, value in keys_by_layer(metadata).items():
        if isinstance(value, np.integer):
            fewer = _uncounted(key.removeprefix(prefix), int(value), removed, (count, trunk))
            changes[key] = value.dtype.type(int(value) - fewer)
        elif isinstance(value, np.ndarray | Strings | Arrays):
            changes[key] = _shortened(value, removed)
    return metadata.updated(changes)


def _uncounted(name: str, number: int, removed: frozenset[int], counts: tuple[int, int]) -> int:
    """Return how many layers that a key counts were removed; `counts`: all, and the trunk."""
    count, trunk = counts
    if name in FIRST_LAYERS:
        return sum(layer < number for layer in removed)
    if name == LAST_LAYERS:
        return sum(layer >= count - number for layer in removed)
    return sum(trunk - number <= layer < trunk for layer in removed)


def _shortened(array: Array, removed: frozenset[int]) -> TypedValue:
    remaining = [i for i in range(len(array)) if i not in removed]
    if isinstance(array, np.ndarray):
        return array[remaining]
    if isinstance(array, Strings):
        return Strings([array[i] for i in remaining])
    return Arrays([array[i] for i in remaining])


def tensor_names(names: Sequence[str]) -> str:
    """Return the count of tensors and their names, with names of many layers merged."""
    layers: dict[str, list[int]] = {}
    for name in names:
        match = BLOCK.match(name)
        layers.setdefault(BLOCK.sub("blk.#.", name), []).extend([int(match[1])] if match else [])
    listed = ", ".join(
        name.replace("#", _ranges(sorted(numbers))) for name, numbers in layers.items()
    )
    return f"{len(names)} {'tensor' if len(names) == 1 else 'tensors'} ({listed})"


def _ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers as "0-3,5"."""
    runs = itertools.groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    ends = ([number for _, number in run] for _, run in runs)
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in ends)
