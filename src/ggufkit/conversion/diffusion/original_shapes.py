"""Gives the tensors of an image model back the shapes that they have in the checkpoint."""

from __future__ import annotations

import math

from ggufkit.conversion.tensors.moves import reshape
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
