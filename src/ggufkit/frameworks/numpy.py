"""NumPy: load a model as arrays, decoded in parallel; `ggufkit.save` writes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ggufkit.format.types import TensorType
from ggufkit.frameworks.fill import decoded_model, decoded_type, float_type
from ggufkit.models.any_model import AnyModel
from ggufkit.models.model import Tensor
from ggufkit.quants.parallel import Numbers
from ggufkit.system.threads import Progress


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
    target: Any = None if dtype is None else np.dtype(dtype)
    floats = float_type(target)

    def type_of(tensor: Tensor) -> TensorType:
        return decoded_type(tensor, floats or (None if tensor.type.dtype else "F32"))

    def wrap(array: Numbers, kind: TensorType) -> Numbers:
        return array.view(target) if kind == "BF16" else array

    return decoded_model(model, type_of, wrap, threads=threads, progress=progress)
