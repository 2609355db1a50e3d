"""gguf-py's `quantize` and `dequantize` on ggufkit's kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import gguf.quants
import numpy as np
import numpy.typing as npt
from gguf.constants import GGMLQuantizationType
from gguf.lazy import LazyNumpyTensor

from ggufkit.errors import ValueTypeError
from ggufkit.format.types import TENSOR_TYPES, TensorType
from ggufkit.quants import codec
from ggufkit.quants.kernels import codecs, requiring_weights
from ggufkit.quants.parallel import Numbers

_gguf_quantize: Final = gguf.quants.quantize
_INTEGERS: Final = frozenset({"I8", "I16", "I32", "I64", "F64"})
quant_shape_to_byte_shape: Final = gguf.quants.quant_shape_to_byte_shape
quant_shape_from_byte_shape: Final = gguf.quants.quant_shape_from_byte_shape


def quantize(data: Numbers, qtype: GGMLQuantizationType) -> Numbers:
    """Return `data` packed as `qtype`: uint8 with the last axis in bytes; floats for F32 and F16.

    Also packs to those types that gguf-py can only read, such as Q4_K. A lazy tensor stays lazy.
    Raises QuantError for rows that do not divide into blocks, NotImplementedError for types that
    need importance data and for integers.
    """
    if qtype == GGMLQuantizationType.F32:
        return data.astype(np.float32, copy=False)
    if qtype == GGMLQuantizationType.F16:
        return data.astype(np.float16, copy=False)
    row = TENSOR_TYPES.get(int(qtype))
    if row is None or row.dtype or row.id in requiring_weights() or not codecs().get(row.id):
        raise NotImplementedError(f"Quantization for {qtype.name} is not yet implemented")
    if data.shape[-1] % row.block_size:
        raise gguf.quants.QuantError(
            f"Can't quantize tensor with shape {data.shape} to {qtype.name}"
        )
    if isinstance(data, LazyNumpyTensor):
        return _lazily(_quantized, row, np.uint8, quant_shape_to_byte_shape, qtype)(data)
    return _quantized(data, row)


def dequantize(data: Numbers, qtype: GGMLQuantizationType) -> Numbers:
    """Return the float32 numbers of packed `data`. A lazy tensor stays lazy.

    Raises NotImplementedError for types that have no decoder, and for integers.
    """
    if qtype == GGMLQuantizationType.F32:
        return data.view(np.float32)
    if qtype == GGMLQuantizationType.F16 and not (
        isinstance(data, np.ndarray) and data.ndim > 0 and data.flags.c_contiguous
    ):
        return data.view(np.float16).astype(np.float32)
    row = TENSOR_TYPES.get(int(qtype))
    if row is None or row.name in _INTEGERS or row.id not in codecs():
        raise NotImplementedError(f"Dequantization for {qtype.name} is not yet implemented")
    if isinstance(data, LazyNumpyTensor):
        return _lazily(codec.dequantize, row, np.float32, quant_shape_from_byte_shape, qtype)(data)
    packed = data.view(np.uint8)
    quant_shape_from_byte_shape(packed.shape, qtype)  # raises gguf-py's error
    return codec.dequantize(packed, row)


def _quantized(data: Numbers, row: TensorType) -> Numbers:
    # What is not a float becomes one as in gguf-py: ggufkit reads uint16 as bfloat16.
    floats = data if data.dtype.kind == "f" else data.astype(np.float32)
    try:
        return codec.quantize(floats, row)
    except ValueTypeError:  # NaN or infinite numbers: gguf-py has its own answer
        return _gguf_quantize(data, GGMLQuantizationType(row.id))


def _lazily(
    function: Callable[[Numbers, TensorType], Numbers],
    row: TensorType,
    dtype: npt.DTypeLike,
    shape: Callable[[Sequence[int], GGMLQuantizationType], tuple[int, ...]],
    qtype: GGMLQuantizationType,
) -> Callable[[Numbers], Numbers]:
    """Return `function` for lazy tensors: it runs when their data is needed."""
    wrapped: Callable[[Numbers], Numbers] = LazyNumpyTensor._wrap_fn(  # noqa: SLF001 (as gguf-py wraps its own)
        lambda data: function(data, row), meta_noop=(dtype, lambda size: shape(size, qtype))
    )
    return wrapped


def __getattr__(name: str) -> Any:  # noqa: ANN401 (as the language has it)
    """Return what else gguf-py has in this module."""
    return getattr(gguf.quants, name)
