"""MLX: load a model as arrays; `ggufkit.save` writes them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

import numpy as np

from ggufkit.format.types import TensorType
from ggufkit.frameworks.extras import library
from ggufkit.frameworks.fill import FLOATS, decoded_model, decoded_type, float_type
from ggufkit.models.any_model import AnyModel, opened
from ggufkit.models.byte_ranges import little_endian_bytes
from ggufkit.models.model import Tensor
from ggufkit.quants.block_parts import block_parts
from ggufkit.quants.parallel import Numbers
from ggufkit.system.threads import Progress

if TYPE_CHECKING:
    import mlx.core as mx

_FLOATS: Final = {name: kind for name, kind in FLOATS.items() if kind != "F64"}
_LOWEST_LEVELS: Final = {"Q4_0": -8, "Q4_1": 0, "Q8_0": -128}  # MLX's levels start at zero


def load(
    model: AnyModel,
    *,
    dtype: mx.Dtype | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> dict[str, mx.array]:
    """Return the tensors of a model by name, as arrays of MLX.

    With `dtype` None plain tensors keep theirs, and quantized ones become float32; else all float
    tensors become `dtype`: float32, float16 or bfloat16. Integers stay integers. Tensors of
    image models have the shapes of the checkpoint.
    """
    core = library("mlx.core", "mlx")
    floats = float_type(dtype, _FLOATS)

    def wrap(array: Numbers, kind: TensorType) -> mx.array:
        return core.array(array).view(core.bfloat16) if kind == "BF16" else core.array(array)

    type_of = functools.partial(decoded_type, floats=floats)
    return decoded_model(model, type_of, wrap, threads=threads, progress=progress)


def load_packed(
    model: AnyModel,
    *,
    dtype: mx.Dtype | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> dict[str, mx.array]:
    """Return the tensors of a model with Q4_0, Q4_1 and Q8_0 packed, as `mx.load` gives them.

    Such a tensor `x.weight` becomes `x.weight`, `x.scales` and `x.biases`, which MLX's quantized
    layers take (`group_size=32`, `bits=4` or 8). All other tensors are those of `load`.
    """
    core = library("mlx.core", "mlx")
    with opened(model) as source:
        tensors = source.tensors.values()
        others = source.replace(tensors=[t for t in tensors if t.type.name not in _LOWEST_LEVELS])
        arrays = load(others, dtype=dtype, threads=threads, progress=progress)
        for tensor in tensors:
            if tensor.type.name in _LOWEST_LEVELS:
                prefix = tensor.name.removesuffix(".weight")
                names = (tensor.name, f"{prefix}.scales", f"{prefix}.biases")
                arrays |= zip(names, map(core.array, _parts(tensor)), strict=True)
    return arrays


def _parts(tensor: Tensor) -> tuple[Numbers, Numbers, Numbers]:
    """Return the levels of a tensor in words of 32 bits, and scales and offsets of its blocks."""
    parts = block_parts(little_endian_bytes(tensor, 0, tensor.nbytes), tensor.type)
    lowest = _LOWEST_LEVELS[tensor.type.name]
    levels = (parts.levels.reshape(-1) - np.int16(lowest)).astype(np.uint8)
    if tensor.type != "Q8_0":
        levels = levels[::2] | levels[1::2] << 4
    scales = parts.scales.astype(np.float16)
    offsets = scales * np.float16(lowest) if parts.offsets is None else parts.offsets
    shape = (*tensor.shape[:-1], -1)
    biases = offsets.astype(np.float16).reshape(shape)
    return levels.view("<u4").reshape(shape), scales.reshape(shape), biases
