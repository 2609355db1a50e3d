"""Call the native kernels: numbers of any dtype to blocks and back, piece by contiguous piece."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

import ggufkit._native as _native
from ggufkit.errors import ShapeError, TensorTypeError, ValueTypeError
from ggufkit.format.types import GGML_TYPES, TENSOR_TYPES, TensorType, tensor_type
from ggufkit.quants.parallel import Floats, Numbers
from ggufkit.quants.search import EFFORTS, search_for
from ggufkit.system.cpu import instruction_set, instruction_sets
from ggufkit.system.mapped_file import Bytes

Encoder = Callable[[Numbers, Floats | None, TensorType, Bytes], int]

REQUIRED: Final = 2  # the native core's mark for a type that requires weights
EXPERT_AXES: Final = 3  # of an array that stacks experts
# Types of so few bits that llama-quantize refuses them without importance data.
NEEDS_IMATRIX: Final = frozenset({"IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS"})


@functools.cache
def codecs() -> dict[int, bool]:
    """Return the ids of all codecs, and whether each can encode."""
    return {row[0]: row[4] for row in _native.codecs(instruction_sets()[-1])}


def has_kernel(type: TensorType) -> bool:
    """Whether the native core decodes a type; programs use some numbers for other types."""
    return GGML_TYPES.get(type.id) == type and type.id in codecs()


def has_encoder(type: TensorType) -> bool:
    """Whether the native core encodes a type, which may be one of ik_llama.cpp's."""
    return TENSOR_TYPES.get(type.id) == type and codecs().get(type.id, False)


def encoded_together(type: TensorType, width: int) -> int:
    """Return how many elements of a row of `width` are encoded independently of all others."""
    return width if type.row_prefix else type.block_size


@functools.cache
def _weights_use() -> dict[int, int]:
    """Return for each codec id whether weights are unused (0), optional (1) or required (2)."""
    return {row[0]: row[5] for row in _native.codecs(instruction_sets()[-1])}


@functools.cache
def requiring_weights() -> frozenset[int]:
    """Return the ids of the types that cannot be encoded without importance weights."""
    return frozenset(number for number, use in _weights_use().items() if use == REQUIRED)


def column_weights(
    imatrix: npt.ArrayLike | None, shape: tuple[int, ...], target: TensorType
) -> Floats | None:
    """Return checked weights for an array of shape `shape`; None if `target` uses none."""
    use = _weights_use()[target.id]
    if imatrix is None:
        if use == REQUIRED:
            raise TensorTypeError(
                f"{target} cannot be encoded without importance weights",
                remedy="Pass a weight per column as `imatrix`",
            )
        return None
    array = np.asarray(imatrix)
    width = shape[-1]
    fitting = [(width,), (shape[0], width)] if len(shape) == EXPERT_AXES else [(width,)]
    if array.shape not in fitting:
        raise ShapeError(
            f"importance weights of shape {array.shape} do not fit an array of shape {shape}",
            remedy="Use one of these shapes: " + ", ".join(map(str, fitting)),
        )
    if array.dtype.kind not in "fiu" and array.dtype.name != "bfloat16":
        raise ValueTypeError(
            f"importance weights are not supported for {array.dtype}", remedy="Pass float32"
        )
    with np.errstate(over="ignore"):  # a double beyond float32 is refused as infinite
        weights: Floats = np.require(array, np.float32, ["C_CONTIGUOUS", "ALIGNED"])
    unusable = np.argwhere(~np.isfinite(weights))
    if len(unusable):
        place = ", ".join(map(str, unusable[0]))
        raise ValueTypeError(
            f"the importance weight at [{place}] is infinite or not a number",
            remedy="Compute the importance data again, or leave it out",
        )
    return weights if use else None


def encoder(dtype: np.dtype[Any], target: TensorType, search: str | None = None) -> Encoder:
    """Return the function that encodes elements of `dtype`; it returns the first misfit, or -1.

    `search` is the name of a search for better blocks (see `search.py`).
    """
    exact_in_float32 = dtype.kind == "f" and np.can_cast(dtype, np.float32)
    if is_integer(target) and dtype.kind in "iuf" and not exact_in_float32:
        return _store_whole
    if dtype.kind == "f" or is_bfloat16(dtype):
        return functools.partial(encode, effort=_effort(search, target))
    raise ValueTypeError(
        f"an array of {dtype} cannot be packed as {target}",
        remedy="Convert it first, for example with `array.astype(np.float32)`",
    )


def encode(
    view: Numbers, weights: Floats | None, target: TensorType, out: Bytes, effort: int = 0
) -> int:
    """Encode floats; return the index of the first that does not fit, or -1."""
    floats = _as_float32(view).reshape(-1)
    if floats.size == 0:
        return -1
    more = (effort,) if effort else ()
    isa = instruction_set()
    return _native.encode(target.id, floats, out, view.shape[-1], weights, isa, *more)


def decode(view: Bytes, source: TensorType, out: Floats, *, streaming: bool) -> None:
    """Decode blocks; `streaming` writes past the caches."""
    data = np.ascontiguousarray(view).reshape(-1)
    _native.decode(source.id, data, out, streaming, instruction_set())


def requantize(  # noqa: PLR0913 (two arrays of blocks, and the options of `encode`)
    blocks: Bytes,
    source: TensorType,
    target: TensorType,
    out: Bytes,
    tile: Floats,
    weights: Floats | None,
    search: str | None,
) -> bool:
    """Decode rows and encode them, as many together as `tile` holds.

    Returns whether `target` holds all numbers; a type with blocks holds only finite ones.
    """
    width = blocks.shape[-1] // source.block_bytes * source.block_size
    own = column_weights(weights, (width,), target)
    data, packed, isa = blocks.reshape(-1), out.reshape(-1), instruction_set()
    return _native.requantize(
        source.id, data, target.id, packed, width, own, tile, isa, _effort(search, target)
    )


def _effort(search: str | None, target: TensorType) -> int:
    return EFFORTS.get(search_for(search, target) or "", 0)


def decoded_for(target: TensorType, view: Bytes, source: TensorType) -> Numbers:
    """Decode a piece for `target`: to float32, or exact integers."""
    if is_integer(target) and source.dtype is not None:
        return np.ascontiguousarray(view).view(np.dtype(source.dtype))
    return _decoded(view, source)


def is_integer(type: TensorType) -> bool:
    """Whether the elements of a type are integers."""
    return (type.dtype or "").startswith("i")


def is_own_dtype(dtype: np.dtype[Any], type: TensorType) -> bool:
    """Whether an array of `dtype` already has the bytes of `type`."""
    if is_bfloat16(dtype):
        return type.name == "BF16"
    return type.dtype is not None and bool(dtype == np.dtype(type.dtype))


def is_bfloat16(dtype: np.dtype[Any]) -> bool:
    """Whether `dtype` is bfloat16: ml_dtypes' own, or its bits as uint16."""
    return dtype.name in {"bfloat16", "uint16"}


def _decoded(view: Bytes, source: TensorType) -> Floats:
    shape = (len(view), view.shape[-1] // source.block_bytes * source.block_size)
    floats = np.empty(shape, np.float32)
    decode(view, source, floats.reshape(-1), streaming=False)
    return floats


def _as_float32(view: Numbers) -> Floats:
    """Return contiguous, aligned float32 values, a copy only where needed."""
    if view.dtype == np.float32 and view.flags.c_contiguous and view.flags.aligned:
        return view  # the usual case: spare a copy for each tile
    if view.dtype == np.float16 or is_bfloat16(view.dtype):
        own = tensor_type("F16" if view.dtype == np.float16 else "BF16")
        words = np.ascontiguousarray(view, view.dtype.newbyteorder("="))
        return _decoded(words.view(np.uint8), own)
    with np.errstate(over="ignore", invalid="ignore"):  # a double beyond float32 is infinite
        return np.require(view, np.float32, ["C_CONTIGUOUS", "ALIGNED"])


def _store_whole(view: Numbers, _: Floats | None, target: TensorType, out: Bytes) -> int:
    """Store doubles or integers as integers of `target`; return the first misfit, or -1."""
    dtype = np.dtype(target.dtype)
    limits = np.iinfo(dtype)
    if view.dtype.kind == "f":
        fits = (view >= limits.min) & (view < -float(limits.min)) & (np.trunc(view) == view)
    else:
        fits = (view >= limits.min) & (view <= limits.max)
    if not fits.all():
        return int(np.argmin(fits.reshape(-1)))
    out.view(dtype)[:] = view.reshape(-1)
    return -1
