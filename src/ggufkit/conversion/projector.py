"""Converts the encoders and the projector of a checkpoint to a model, as llama.cpp's converter.

A projector file turns pictures or sound into embeddings of a text model. Its facts are the
architecture files in `architecture/projectors`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from ggufkit.conversion.added_tensors import with_folder
from ggufkit.conversion.architecture.architecture import Architecture, classes, find
from ggufkit.conversion.architecture.config import ConfigFacts, parameters
from ggufkit.conversion.architecture.generated import generate
from ggufkit.conversion.card.describe import describe
from ggufkit.conversion.checkpoint.dequantize import dequantize
from ggufkit.conversion.checkpoint.folder import Checkpoint
from ggufkit.conversion.choices import Choices
from ggufkit.conversion.map_tensors import in_pattern_order, map_tensors
from ggufkit.conversion.tensors.storage_type import automatic, outtype_type, stored_each
from ggufkit.errors import CheckpointError
from ggufkit.format.file_types import NUMBER_OF, QUANTIZATION_VERSION
from ggufkit.format.metadata import Metadata
from ggufkit.models.model import Model, Tensor, Tensors
from ggufkit.models.rows import closing_on_error
from ggufkit.system.threads import Notify

TYPE: Final = "mmproj"  # general.type
# Files that say how pictures and sound are prepared, and the object in each whose fields count as
# the file's own. The later file wins.
_PREPARED: Final = (
    ("preprocessor_config.json", "media_proc_cfg"),
    ("processor_config.json", "image_processor"),
)
_BLOCK: Final = re.compile(r"([va])\.blk\.(\d+)\.")
_ENCODERS: Final = {"v": "vision", "a": "audio"}


def preprocessor(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return how pictures are prepared, from both files that may say it."""
    merged: dict[str, Any] = {}
    for name, inner in _PREPARED:
        settings = checkpoint.json(name) or {}
        within = settings.get(inner)
        merged |= {**settings, **(within if isinstance(within, Mapping) else {})}
    return merged


def projected(checkpoint: Checkpoint, choices: Choices, say: Notify) -> Model:
    """Return the projector of an opened checkpoint as a lazy model."""
    config = checkpoint.config
    names = classes(config, "vision_config")
    architecture = find(names, choices.arch_path, config, projectors=True)
    if not architecture.beside:
        return _project(checkpoint, architecture, choices, say)
    both = with_folder(checkpoint, architecture.beside)
    with closing_on_error(both.close):
        return _project(both, architecture, choices, say)


def _project(
    checkpoint: Checkpoint, architecture: Architecture, choices: Choices, say: Notify
) -> Model:
    config = checkpoint.config
    more = {"preprocessor": preprocessor(checkpoint), "root": config}
    if architecture.beside:
        more["beside"] = checkpoint.json(f"{architecture.beside}/config.json") or {}
    facts = ConfigFacts(checkpoint, architecture, more, exactly=choices.exactly)
    for encoder in _ENCODERS.values():
        if encoder in architecture.required and facts.value(encoder) is None:
            raise CheckpointError(
                f"{checkpoint.folder} has no projector: its configuration has no {encoder} encoder",
                remedy="Convert it without the projector",
            )
    plain = dequantize(list(checkpoint.tensors.values()), config)
    ordered = in_pattern_order(plain.tensors, facts) if architecture.ordered else plain.tensors
    placement = map_tensors(ordered, facts)
    skipped = {*placement.skipped, *plain.skipped}
    used = [tensor for tensor in plain.tensors if tensor.name not in skipped]
    kind = outtype_type(choices.outtype) or automatic(used)
    facts.fields["file_type"] = NUMBER_OF[kind]
    keys, wrong = parameters(facts, architecture.metadata)
    tensors = [*generate(facts), *placement.tensors]
    stored, unstored = stored_each(tensors, kind, architecture.types, numpy_nan=choices.exactly)
    about_config = facts.problems("the configuration", say)
    problems = [*placement.problems, *wrong, *about_config, *unstored]
    problems += _about_layers(keys, stored, architecture.uneven)
    if problems:
        raise CheckpointError(f"the projector of {checkpoint.folder} cannot be converted", problems)
    metadata = {
        "general.architecture": architecture.name,
        **describe(checkpoint, **choices.of_description, tensors=stored, say=say),
        "general.type": TYPE,
        **keys,
        "general.quantization_version": np.uint32(QUANTIZATION_VERSION),
    }
    return Model(Metadata(metadata), Tensors(stored)).reading(checkpoint.files)


def _about_layers(
    keys: Mapping[str, Any], tensors: Sequence[Tensor], uneven: Sequence[str]
) -> Iterator[str]:
    matches = (_BLOCK.match(tensor.name) for tensor in tensors)
    numbers = {(match[1], int(match[2])) for match in matches if match}
    for letter, encoder in _ENCODERS.items():
        count = keys.get(f"clip.{encoder}.block_count")
        if count is None or f"{letter}.blk.{{i}}" in uneven:
            continue
        layers = {layer for prefix, layer in numbers if prefix == letter}
        missing = [layer for layer in range(int(count)) if layer not in layers]
        if missing:
            yield f"the {encoder} encoder has no tensors of layer {missing[0]}, of {count} layers"
