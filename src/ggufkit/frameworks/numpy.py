"""NumPy: load a model as arrays, decoded in parallel, and save arrays as GGUF."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from ggufkit.conversion.diffusion.original_shapes import original_shape
from ggufkit.errors import ValueTypeError
from ggufkit.frameworks.fill import decoded_arrays, decoded_type
from ggufkit.models.any_model import AnyModel, opened
from ggufkit.output.write import WriteOptions
from ggufkit.output.write import save as save_arrays
from ggufkit.quants.parallel import Numbers
from ggufkit.system.descriptors import AnyPath
from ggufkit.system.threads import Progress

if TYPE_CHECKING:
    from typing_extensions import Unpack

_FLOATS: Final = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "float64": "F64"}


def load(
    model: AnyModel,
    *,
    dtype: npt.DTypeLike | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Numbers]:
    """Return the tensors of a model by name, as new arrays that can be written to.

    With `dtype` None plain tensors keep theirs, and all others become float32; else all float
    tensors become `dtype`: float16, float32, float64 or ml_dtypes.bfloat16. Integers stay integers.
    `progress(done, total)` counts elements. The arrays have `__dlpack__`, except bfloat16.
    Tensors of image models have the shapes of the checkpoint. What a safetensors file holds in
    types that NumPy lacks, such as F8, comes as its bytes.
    """
    target = None if dtype is None else np.dtype(dtype)
    floats = float_type(target and target.name)
    with opened(model) as source:
        tensors = [*source.tensors.values()]
        types = [
            decoded_type(tensor, "F32" if floats is None and tensor.type.dtype is None else floats)
            for tensor in tensors
        ]
        shapes = [original_shape(tensor, source.metadata) for tensor in tensors]
        arrays = decoded_arrays(tensors, types, threads=threads, progress=progress)
    if target is not None:
        arrays = [
            array.view(target) if kind == "BF16" else array
            for kind, array in zip(types, arrays, strict=True)
        ]
    rows = zip(tensors, shapes, arrays, strict=True)
    return {
        tensor.name: array if shape == tensor.shape else array.reshape(shape)
        for tensor, shape, array in rows
    }


def save(
    tensors: Mapping[str, Any],
    path: AnyPath | IO[bytes],
    metadata: Mapping[str, object] | None = None,
    **options: Unpack[WriteOptions],
) -> list[Path]:
    """Write arrays and plain metadata as a GGUF file: `ggufkit.save` with the arrays first."""
    return save_arrays(path, tensors, metadata, **options)


def float_type(name: str | None) -> str | None:
    """Return the tensor type of a float dtype by its name; None for None."""
    if name is not None and name not in _FLOATS:
        raise ValueTypeError(
            f"cannot decode to {name}", remedy=f"Use None or one of {', '.join(_FLOATS)}"
        )
    return None if name is None else _FLOATS[name]
