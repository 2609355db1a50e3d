"""Interleave the rows of matrices as ik_llama.cpp's `llama-quantize --repack` does, and undo it.

Only the order of bits changes, and general.file_type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from ggufkit.errors import TensorTypeError
from ggufkit.format.file_types import FILE_TYPE_KEY, FILE_TYPES, INTERLEAVED, NUMBER_OF
from ggufkit.format.types import TensorType
from ggufkit.format.values import whole_number
from ggufkit.models import sources
from ggufkit.models.model import Model, Tensor

# BF16_R16 is left out, because only processors with AVX512-BF16 compute with it.
_BY_PLAIN: Final = {kind.plain: kind for kind in TensorType if kind.plain not in (None, "BF16")}


def interleaved(model: Model) -> Model:
    """Return a model whose rows are interleaved where ik_llama.cpp interleaves them.

    Tensors keep their type if no interleaved type holds their bits, if the rows of a matrix are not
    whole groups, and token embeddings. Raises TensorTypeError if all do.
    """
    tensors = [_interleaved(tensor) for tensor in model.tensors.values()]
    if not any(tensor.type.interleaved > 1 for tensor in tensors):
        raise TensorTypeError(
            "no tensor can be interleaved",
            remedy="Quantize the model first: types such as Q4_K, IQ4_XS and IQ4_KS have "
            "interleaved forms, for matrices with a multiple of 4 or 8 rows",
        )
    return _renamed(model.replace(tensors=tensors), INTERLEAVED)


def deinterleaved(model: Model) -> Model:
    """Return a model whose interleaved rows are plain, where a plain type has the same bits."""
    tensors = map(sources.deinterleaved, model.tensors.values())
    plain = {name: other for other, name in reversed(INTERLEAVED.items())}
    return _renamed(model.replace(tensors=tensors), plain)


def _interleaved(tensor: Tensor) -> Tensor:
    kind = _BY_PLAIN.get(tensor.type.name)
    if kind is None or not sources.can_interleave(tensor, kind):
        return tensor
    return sources.interleaved(tensor, kind)


def _renamed(model: Model, names: Mapping[str, str]) -> Model:
    number = whole_number(model.metadata.get(FILE_TYPE_KEY))
    name = names.get(FILE_TYPES.get(-1 if number is None else number, ""))
    if name is None:
        return model
    return model.replace(
        metadata=model.metadata.updated({FILE_TYPE_KEY: np.uint32(NUMBER_OF[name])})
    )
