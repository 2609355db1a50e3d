"""Decode tensors into arrays, all of them in parallel and without copies of whole tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, TypeVar

import numpy as np

from ggufkit.conversion.diffusion.rename import original_shape
from ggufkit.errors import TensorTypeError, ValueTypeError
from ggufkit.format.types import DTYPES, TensorType, tensor_type
from ggufkit.models.any_model import AnyModel, opened
from ggufkit.models.model import Tensor
from ggufkit.models.rows import Source
from ggufkit.models.sources import in_order, separable
from ggufkit.quants import codec
from ggufkit.quants.parallel import Numbers, aligned
from ggufkit.system.cancellation import check_cancelled
from ggufkit.system.cpu import worker_count
from ggufkit.system.threads import Progress, in_turn, pool_of

PIECE: Final = 1 << 20  # elements: large enough that a read is cheap, far smaller than any model
AHEAD: Final = 4  # pieces per thread that are decoded while the first is waited for
FLOATS: Final = {DTYPES[kind]: kind for kind in ("F32", "F16", "BF16", "F64")}
Wrapped = TypeVar("Wrapped")


def float_type(dtype: object, types: Mapping[str, str] = FLOATS) -> str | None:
    """Return the tensor type of a library's float dtype, or of its name; None for None."""
    name = str(dtype).rpartition(".")[2]
    if dtype is not None and name not in types:
        remedy = f"Use None or one of {', '.join(types)}"
        raise ValueTypeError(f"cannot decode to {dtype}", remedy=remedy)
    return None if dtype is None else types[name]


def decoded_type(tensor: Tensor, floats: str | None) -> TensorType:
    """Return the plain type that a tensor is decoded to: `floats`, or its own, or F32.

    Integers and the types of safetensors that GGUF lacks, such as F8, stay what they are. Raises
    TensorTypeError for an opaque type.
    """
    if tensor.type.is_opaque:
        raise TensorTypeError(
            f"tensor {tensor.name!r} is of type {tensor.type}, which cannot be decoded",
            remedy="Leave it out: ggufkit.select(model, drop=[...])",
        )
    is_plain = not tensor.type.is_quantized
    is_integer = (tensor.type.dtype or "f").startswith(("i", "u", "?"))
    if tensor.type.id < 0 or (is_plain and (floats is None or is_integer)):
        return tensor.type
    return tensor_type(floats or "F32")


def dtype_of(type: TensorType) -> np.dtype[Any]:
    """Return the dtype of arrays that hold a plain type: uint16 for the bits of BF16.

    Types that NumPy and GGUF lack are bytes.
    """
    return np.dtype(type.dtype or (np.uint8 if type.id < 0 else np.uint16))


def decoded_model(
    model: AnyModel,
    type_of: Callable[[Tensor], TensorType],
    wrap: Callable[[Numbers, TensorType], Wrapped],
    *,
    threads: int | None,
    progress: Progress | None,
) -> dict[str, Wrapped]:
    """Return what `wrap` makes of each tensor's array, which is of the plain type by `type_of`.

    Tensors of image models have the shapes of the checkpoint.
    """
    with opened(model) as source:
        tensors = [*source.values()]
        types = [*map(type_of, tensors)]
        shapes = [original_shape(tensor, source.metadata) for tensor in tensors]
        arrays = decoded_arrays(tensors, types, threads=threads, progress=progress)
    return {
        tensor.name: wrap(array if shape == tensor.shape else array.reshape(shape), kind)
        for tensor, kind, shape, array in zip(tensors, types, shapes, arrays, strict=True)
    }


def _empty(tensor: Tensor, type: TensorType) -> Numbers:
    """Return an array for a tensor; the last axis counts bytes if the array holds bytes."""
    is_bytes = tensor.shape and dtype_of(type) == np.uint8
    shape = (*tensor.shape[:-1], tensor.row_bytes) if is_bytes else tensor.shape
    return aligned(shape, dtype_of(type))


def decoded_arrays(
    tensors: Sequence[Tensor],
    types: Sequence[TensorType],
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> list[Numbers]:
    """Return new arrays with the elements of `tensors`, in shape and as these plain types.

    Memory beyond the arrays is a few MiB per thread. `progress(done, total)` counts elements.
    Raises what reading and decoding raise.
    """
    arrays = list(map(_empty, tensors, types))
    pieces = list(chain.from_iterable(map(_pieces, tensors, types, arrays)))
    count = min(worker_count(threads), len(pieces)) or 1
    done, total = 0, sum(array.size for array in arrays)
    with pool_of(count) as pool:
        for size in in_turn(pool, pieces, AHEAD * count):
            done += size
            if progress:
                progress(done, total)
    return arrays


def _pieces(tensor: Tensor, type: TensorType, array: Numbers) -> Iterator[Callable[[], int]]:
    """Yield functions that decode some rows into an array, and return the number of elements."""
    if not array.size:
        return
    tensor = separable(tensor)
    rows = array.reshape(tensor.rows, -1)
    step = max(1, PIECE // rows.shape[1])
    source = in_order(tensor, "little")
    for start in range(0, tensor.rows, step):
        part = rows[start : start + step]
        yield functools.partial(_decode, source, tensor.type, type, start, part)


def _decode(
    source: Source, from_type: TensorType, to_type: TensorType, start: int, out: Numbers
) -> int:
    check_cancelled()
    packed = source.read(start, start + len(out))
    if from_type == to_type:
        np.copyto(out.view(np.uint8), packed)
    elif out.dtype == np.float32:
        codec.dequantize(packed, from_type, threads=1, out=out)
    else:
        codec.requantize(packed, from_type, to_type, threads=1, out=out.view(np.uint8))
    return out.size
