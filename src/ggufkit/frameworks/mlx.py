"""MLX: load a model as arrays; `ggufkit.save` writes them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

from ggufkit.format.types import TensorType
from ggufkit.frameworks.extras import library
from ggufkit.frameworks.fill import FLOATS, decoded_model, decoded_type, float_type
from ggufkit.models.any_model import AnyModel
from ggufkit.quants.parallel import Numbers
from ggufkit.system.threads import Progress

if TYPE_CHECKING:
    import mlx.core as mx

_FLOATS: Final = {name: kind for name, kind in FLOATS.items() if kind != "F64"}


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
