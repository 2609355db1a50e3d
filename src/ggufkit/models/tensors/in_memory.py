"""Tensors and models that are made of arrays, or of functions that yield rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ggufkit.errors import ShapeError, TensorTypeError, brief
from ggufkit.format.arguments import mapping
from ggufkit.format.file_types import QUANTIZATION_VERSION, VERSION_KEY
from ggufkit.format.metadata import Metadata
from ggufkit.format.types import MAX_DIMS, TensorType, tensor_type
from ggufkit.models.model import Model, Tensor, Tensors
from ggufkit.models.rows import ComputedRows, rows_and_width
from ggufkit.models.sources import from_array
from ggufkit.models.tensors.tensor import Elements
from ggufkit.quants import codec
from ggufkit.system.mapped_file import Bytes

RowFunction = Callable[[int, int], Any]
_BITS: Final = {
    np.dtype("u1"): "ggufkit.packed(array, type)",
    np.dtype("u2"): "ggufkit.bf16(array)",
}
_FORMS: Final = 'Write an array, (array, "Q8_0"), or (shape, "Q8_0", function that yields rows)'


def model(tensors: Mapping[str, Any], metadata: Mapping[str, object] | None = None) -> Model:
    """Return a model of arrays and plain metadata.

    Each tensor is one of these:

    - an array (stored in its dtype) of NumPy, torch or MLX, or a Tensor;
    - `(array, type)`: quantized to the type when written;
    - `packed(array, type)`: bytes already packed; `bf16(array)`: the bits of bfloat16;
    - `(shape, type, rows)`: `rows(start, stop)` returns or yields rows `start` to `stop`, counted
      over all axes but the last, as numbers (packed when written) or as bytes already packed. It
      is called when the model is written, for any rows, from several threads.

    Values of `metadata` get the types that `ggufkit.format.coerce.typed_value` documents. Raises
    TensorTypeError, ShapeError and ValueTypeError for values that GGUF cannot hold. A model with
    quantized tensors gets the key `general.quantization_version`.
    """
    arrays = Tensors(as_tensor(name, value) for name, value in mapping("tensors", tensors).items())
    keys = Metadata({} if metadata is None else metadata)
    if VERSION_KEY not in keys and any(t.type.is_quantized for t in arrays.values()):
        keys = keys.updated({VERSION_KEY: np.uint32(QUANTIZATION_VERSION)})
    return Model(keys, arrays)


def packed(array: Elements, type: str | int | TensorType) -> Tensor:
    """Return the tensor of rows that are packed as `type` already, as `quants.quantize` packs them.

    `array` is uint8; its last axis counts bytes. `model` and `save` take the result as a tensor.
    Raises TensorTypeError for another dtype, ShapeError for rows that are not whole blocks.
    """
    return from_array("packed", _of_dtype(array, np.uint8), tensor_type(type))


def bf16(array: Elements) -> Tensor:
    """Return the tensor of bits of bfloat16, an array of uint16; TensorTypeError for others."""
    return from_array("bf16", _of_dtype(array, np.uint16), "BF16")


def _of_dtype(array: Elements, dtype: npt.DTypeLike) -> Elements:
    if getattr(array, "dtype", None) == dtype:
        return array
    raise TensorTypeError(
        f"{brief(array)} is not an array of {np.dtype(dtype)}", remedy="Use array.view(dtype)"
    )


def as_tensor(name: str, value: object) -> Tensor:
    """Return the tensor called `name` that `value` describes, as `model` documents it."""
    if isinstance(value, Tensor):
        return Tensor(name, value.type, value.shape, value.nbytes, value.source)
    return of_few_axes(_new_tensor(name, value))


def of_few_axes(tensor: Tensor) -> Tensor:
    """Return the tensor; ShapeError if it has more axes than ggml reads."""
    if len(tensor.shape) > MAX_DIMS:
        raise ShapeError(
            f"tensor {tensor.name!r} has {len(tensor.shape)} axes, but ggml reads {MAX_DIMS}",
            remedy="Reshape it, as array.reshape(-1, *array.shape[-3:]) does",
        )
    return tensor


def _new_tensor(name: str, value: object) -> Tensor:
    if not isinstance(value, tuple):
        array, own = _as_array(name, value)
        return from_array(name, array, own)
    if len(value) == 3 and callable(value[2]):  # noqa: PLR2004 (shape, type and rows)
        return _of_rows(name, *value)
    if len(value) != 2 or not isinstance(value[1], str | int | TensorType):  # noqa: PLR2004
        raise TensorTypeError(
            f"tensor {name!r}: a tuple is a pair of an array and a tensor type, or a shape, a type "
            "and a function",
            remedy=_FORMS,
        )
    array, own = _as_array(name, value[0])
    if own is None and array.dtype in _BITS:
        raise TensorTypeError(
            f"tensor {name!r}: numbers of {array.dtype} cannot become {tensor_type(value[1])}",
            remedy=f"Convert them to float32, or write {_BITS[array.dtype]} if they are bits",
        )
    return from_array(name, array, value[1])


def _as_array(name: str, value: Any) -> tuple[Elements, str | None]:  # noqa: ANN401
    """Return the array of NumPy, torch or MLX, and the type of bits that NumPy has no dtype for."""
    library = type(value).__module__.partition(".")[0]
    is_bfloat16 = str(getattr(value, "dtype", "")).endswith(".bfloat16")
    try:
        if library == "torch":
            value = value.detach().cpu()
            value = value.view(sys.modules["torch"].int16) if is_bfloat16 else value
        elif library == "mlx" and is_bfloat16:
            value = value.view(sys.modules["mlx.core"].uint16)
        if isinstance(value, np.ma.MaskedArray):
            raise TypeError("NumPy's masked arrays have elements without a value")  # noqa: TRY301
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:  # ragged lists, and other libraries
        raise TensorTypeError(
            f"tensor {name!r} is not an array: {error}", remedy="Give a NumPy array"
        ) from error
    if library in {"torch", "mlx"} and is_bfloat16:
        return array.view(np.uint16), "BF16"
    return array, None


@dataclass(frozen=True, eq=False)
class YieldedRows(ComputedRows):
    """Rows that a function makes when they are read."""

    name: str
    type: TensorType
    width: int
    rows: RowFunction

    def read(self, start: int, stop: int) -> Bytes:
        """Ask for the rows, and pack them."""
        rows = self.rows(start, stop)
        numbers = np.asarray(list(rows) if isinstance(rows, Iterator) else rows)
        row_bytes = self.type.row_bytes(self.width)
        is_packed = numbers.dtype == np.uint8
        expected = (stop - start) * (row_bytes if is_packed else self.width)
        if numbers.size != expected:
            raise ShapeError(
                f"tensor {self.name!r}: the function returned an array of {numbers.shape} for rows "
                f"{start} to {stop}",
                remedy=f"Return {stop - start} rows of {self.width} numbers, or {row_bytes} bytes",
            )
        if is_packed:
            return np.ascontiguousarray(numbers).reshape(stop - start, row_bytes)
        return codec.quantize(numbers.reshape(stop - start, self.width), self.type, threads=1)


def _of_rows(name: str, shape: Any, type: Any, rows: RowFunction) -> Tensor:  # noqa: ANN401
    try:
        sizes = tuple(np.asarray(shape, np.int64).reshape(-1).tolist())
    except (TypeError, ValueError):
        sizes = (-1,)
    if min(sizes, default=0) < 0:
        raise ShapeError(f"tensor {name!r}: {brief(shape)} is not a shape", remedy=_FORMS)
    kind = tensor_type(type)
    return Tensor.over(name, kind, sizes, YieldedRows(name, kind, rows_and_width(sizes)[1], rows))
