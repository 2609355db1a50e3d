"""MLX: load a model as arrays; `frameworks.numpy.save` writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ggufkit.errors import ValueTypeError
from ggufkit.format.types import TensorType
from ggufkit.frameworks.extras import library
from ggufkit.frameworks.fill import decoded_arrays, decoded_type
from ggufkit.models.any_model import AnyModel, opened
from ggufkit.quants.parallel import Numbers
from ggufkit.system.threads import Progress

if TYPE_CHECKING:
    import mlx.core as mx

EXTRA: Final = "mlx"
_FLOATS: Final = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}


def load(
    model: AnyModel,
    *,
    dtype: mx.Dtype | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> dict[str, mx.array]:
    """Return the tensors of a model by name, as arrays of MLX.

    With `dtype` None plain tensors keep theirs, and quantized ones become float32; else all float
    tensors become `dtype`: float32, float16 or bfloat16. Integers stay integers.
    """
    library("mlx.core", EXTRA)
    name = None if dtype is None else str(dtype).rpartition(".")[2]
    if name is not None and name not in _FLOATS:
        raise ValueTypeError(
            f"cannot decode to {dtype}", remedy=f"Use None or one of {', '.join(_FLOATS)}"
        )
    with opened(model) as source:
        tensors = [*source.tensors.values()]
        types = [
            decoded_type(tensor, None if name is None else _FLOATS[name]) for tensor in tensors
        ]
        arrays = decoded_arrays(tensors, types, threads=threads, progress=progress)
    return {
        tensor.name: _as_mlx(array, kind)
        for tensor, kind, array in zip(tensors, types, arrays, strict=True)
    }


def _as_mlx(array: Numbers, kind: TensorType) -> mx.array:
    core = library("mlx.core", EXTRA)
    converted = core.array(array)
    return converted.view(core.bfloat16) if kind.dtype is None else converted
