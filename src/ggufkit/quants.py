"""Quantize and dequantize arrays exactly as ggml does, faster.

Shapes are as in gguf-py: the last axis of the packed form counts bytes instead of elements.
Large arrays use all cores; GGUFKIT_ISA forces an instruction set, such as `v2` or `portable`.
"""

from __future__ import annotations

import functools
import math
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ggufkit import _native
from ggufkit.errors import GGUFError, ShapeError, TensorTypeError, ValueTypeError
from ggufkit.types import TensorType, tensor_type

Array = np.ndarray[Any, np.dtype[Any]]
Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]
AnyType = TensorType | str | int

TASK: Final = 1 << 18  # elements per task: long beside its start, its floats short beside a cache
TASKS_PER_THREAD: Final = 4  # fewer are not worth starting a thread for
REQUIRED: Final = 2  # how the native core says that a type cannot do without weights
EXPERT_AXES: Final = 3  # of an array that stacks experts
ALIGNMENT: Final = 64  # bytes: streaming stores want whole cache lines


@dataclass(frozen=True)
class _Piece:
    """Rows of a matrix, or a part of one row, where they begin, and the weights of columns."""

    row: int
    column: int
    view: Array
    weights: Floats | None = None


def instruction_sets() -> tuple[str, ...]:
    """Return the instruction sets that this machine runs, the fastest first."""
    return tuple(_native.instruction_sets())


def instruction_set() -> str:
    """Return the instruction set in use: the fastest, or the one that GGUFKIT_ISA names.

    Raises GGUFError when GGUFKIT_ISA names none that this machine runs.
    """
    return _chosen(os.environ.get("GGUFKIT_ISA", ""))


@functools.cache
def _chosen(forced: str) -> str:
    runnable = instruction_sets()
    if forced and forced not in runnable:
        raise GGUFError(
            f"GGUFKIT_ISA asks for the instruction set {forced!r}, which cannot run here",
            remedy=f"Use one of {', '.join(runnable)}, or unset it",
        )
    return forced or runnable[0]


def usable_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def quantize(
    array: npt.ArrayLike,
    type: AnyType,
    *,
    imatrix: npt.ArrayLike | None = None,
    threads: int | None = None,
) -> Bytes:
    """Return `array` packed as `type`: shape (..., width) becomes (..., bytes of a row).

    Takes float16, bfloat16 (of ml_dtypes), float32 and float64 in any strides and converts to
    float32 as it goes, never the whole; integer types take integers too. An array of the type's
    own dtype keeps its exact bytes, as a view where it is contiguous. `imatrix` holds a weight per
    column, float32 of shape (width,), or (experts, width) for an array of three axes; types that
    ggml weighs nothing for ignore it. Raises TensorTypeError for a type that has no encoder or
    cannot do without weights, ShapeError where rows do not divide into blocks or weights do not
    fit, ValueTypeError for other dtypes, for weights that are not finite, and for values that an
    integer type does not hold exactly.
    """
    target = encodable(type)
    source = np.asarray(array)
    _require_blocks(source, target.block_size, f"the {target.block_size} elements of a {target}")
    weights = _column_weights(imatrix, source.shape, target)
    if _is_own_dtype(source.dtype, target):
        return np.ascontiguousarray(source).view(np.uint8)
    pack = _packer(source.dtype, target)
    width = source.shape[-1]
    packed = _aligned((*source.shape[:-1], target.row_bytes(width)), np.dtype(np.uint8))
    rows = _rows(packed)

    def run(piece: _Piece) -> None:
        start = target.row_bytes(piece.column)
        stop = start + target.row_bytes(piece.view.shape[-1])
        out = rows[piece.row : piece.row + len(piece.view), start:stop]
        bad = pack(piece, target, out.reshape(-1))
        if bad >= 0:
            raise _refusal(piece, bad, target)

    _run_all(run, list(_weighted_pieces(source, target.block_size, weights)), threads)
    return packed


def dequantize(data: Bytes, type: AnyType, *, threads: int | None = None) -> Floats:
    """Return the float32 elements of packed `data`: the inverse of `quantize`.

    `data` is uint8 of shape (..., bytes of a row), in any strides. F32 gives a view where it can.
    Raises TensorTypeError for a type that has no decoder, ShapeError where rows do not divide
    into blocks, ValueTypeError for another dtype.
    """
    source = decodable(type)
    packed = _packed_bytes(data)
    _require_blocks(packed, source.block_bytes, f"the {source.block_bytes} bytes of a {source}")
    if source.dtype == "f4" and packed.ctypes.data % ALIGNMENT == 0 and packed.flags.c_contiguous:
        return packed.view(np.float32)
    width = packed.shape[-1] // source.block_bytes * source.block_size
    elements = _aligned((*packed.shape[:-1], width), np.dtype(np.float32))
    rows = _rows(elements)
    streaming = elements.nbytes > _native.last_level_cache_bytes()

    def run(piece: _Piece) -> None:
        start = piece.column // source.block_bytes * source.block_size
        stop = start + piece.view.shape[-1] // source.block_bytes * source.block_size
        out = rows[piece.row : piece.row + len(piece.view), start:stop]
        _decode(piece.view, source, out.reshape(-1), streaming=streaming)

    step = TASK // source.block_size * source.block_bytes
    _run_all(run, list(_pieces(packed, source.block_bytes, step)), threads)
    return elements


def encode_rows(
    rows: Floats, type: AnyType, out: Bytes | None = None, *, imatrix: npt.ArrayLike | None = None
) -> Bytes:
    """Pack contiguous float32 `rows` (n, width) into `out` (n, bytes of a row), in this thread.

    The interpreter lock is released meanwhile. `imatrix` has shape (width,). Raises as `quantize`
    does.
    """
    target = encodable(type)
    _require_blocks(rows, target.block_size, f"the {target.block_size} elements of a {target}")
    shape = (*rows.shape[:-1], target.row_bytes(rows.shape[-1]))
    packed = _checked_out(out, shape, np.dtype(np.uint8))
    piece = _Piece(0, 0, rows, _column_weights(imatrix, rows.shape[-1:], target))
    bad = _encode(piece, target, packed.reshape(-1))
    if bad >= 0:
        raise _refusal(piece, bad, target)
    return packed


def decode_rows(data: Bytes, type: AnyType, out: Floats | None = None) -> Floats:
    """Unpack contiguous uint8 rows (n, bytes of a row) into `out` (n, width), in this thread.

    The interpreter lock is released meanwhile. Raises as `dequantize` does.
    """
    source = decodable(type)
    packed = _packed_bytes(data)
    _require_blocks(packed, source.block_bytes, f"the {source.block_bytes} bytes of a {source}")
    width = packed.shape[-1] // source.block_bytes * source.block_size
    elements = _checked_out(out, (*packed.shape[:-1], width), np.dtype(np.float32))
    _decode(packed, source, elements.reshape(-1), streaming=False)
    return elements


def validate(data: Bytes, type: AnyType) -> int | None:
    """Return the first block that ggml's row validation refuses (NaN or infinite scales), or None.

    Blocks count from 0 through all rows. Raises as `dequantize` does.
    """
    source = decodable(type)
    packed = _packed_bytes(data)
    _require_blocks(packed, source.block_bytes, f"the {source.block_bytes} bytes of a {source}")
    flat = np.ascontiguousarray(packed).reshape(-1)
    bad = _native.validate(source.id, flat, instruction_set())
    return bad if bad >= 0 else None


def encodable(type: AnyType) -> TensorType:
    """Return the row of a type that `quantize` takes; raise TensorTypeError for any other."""
    found = tensor_type(type)
    if not _codecs().get(found.id, False):
        can = ", ".join(tensor_type(key).name for key, encodes in _codecs().items() if encodes)
        raise TensorTypeError(f"{found} cannot be encoded", remedy=f"These can: {can}")
    return found


def decodable(type: AnyType) -> TensorType:
    """Return the row of a type that `dequantize` takes; raise TensorTypeError for any other."""
    found = tensor_type(type)
    if found.id not in _codecs():
        can = ", ".join(tensor_type(key).name for key in _codecs())
        raise TensorTypeError(f"{found} cannot be decoded", remedy=f"These can: {can}")
    return found


def check_requantize(source: AnyType, target: AnyType) -> None:
    """Raise TensorTypeError unless `source` has a decoder and `target` an encoder."""
    decodable(source)
    encodable(target)


@functools.cache
def _codecs() -> dict[int, bool]:
    """Return the ids of all codecs and whether each encodes."""
    return {row[0]: row[4] for row in _native.codecs(instruction_sets()[-1])}


@functools.cache
def _weights_use() -> dict[int, int]:
    """Return the ids of all codecs and whether weights are unused (0), taken or required (2)."""
    return {row[0]: row[5] for row in _native.codecs(instruction_sets()[-1])}


def _column_weights(
    imatrix: npt.ArrayLike | None, shape: tuple[int, ...], target: TensorType
) -> Floats | None:
    """Return checked weights for an array of that shape, None where `target` uses none."""
    use = _weights_use()[target.id]
    if imatrix is None:
        if use == REQUIRED:
            raise TensorTypeError(
                f"{target} cannot be encoded without importance weights",
                remedy="Pass a weight per column as `imatrix`",
            )
        return None
    given = np.asarray(imatrix)
    width = shape[-1]
    fitting = [(width,), (shape[0], width)] if len(shape) == EXPERT_AXES else [(width,)]
    if given.shape not in fitting:
        raise ShapeError(
            f"importance weights of shape {given.shape} do not fit an array of shape {shape}",
            remedy="These shapes do: " + ", ".join(map(str, fitting)),
        )
    with np.errstate(over="ignore"):  # a double beyond float32 is refused as infinite
        weights = np.require(given, np.float32, ["C_CONTIGUOUS", "ALIGNED"])
    if not np.isfinite(weights).all():
        raise ValueTypeError("an importance weight is infinite or not a number")
    return weights if use else None


def _encode(piece: _Piece, target: TensorType, out: Bytes) -> int:
    """Pack floats and return the first that does not fit, or -1."""
    floats = _as_float32(piece.view).reshape(-1)
    if floats.size == 0:
        return -1
    width, isa = piece.view.shape[-1], instruction_set()
    return _native.encode(target.id, floats, out, width, piece.weights, isa)


def _decode(view: Bytes, source: TensorType, out: Floats, *, streaming: bool) -> None:
    data = np.ascontiguousarray(view).reshape(-1)
    _native.decode(source.id, data, out, streaming, instruction_set())


def _as_float32(view: Array) -> Floats:
    """Return contiguous, aligned float32 values, a copy only where needed."""
    if view.dtype == np.float16 or _is_bfloat16(view.dtype):
        own = "F16" if view.dtype == np.float16 else "BF16"
        return decode_rows(np.ascontiguousarray(view).view(np.uint8), own)
    with np.errstate(over="ignore", invalid="ignore"):  # a double beyond float32 is infinite
        return np.require(view, np.float32, ["C_CONTIGUOUS", "ALIGNED"])


def _store_whole(piece: _Piece, target: TensorType, out: Bytes) -> int:
    """Pack doubles or integers as the integers of `target`; return the first not held, or -1."""
    view = piece.view
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


def _packer(dtype: np.dtype[Any], target: TensorType) -> Callable[[_Piece, TensorType, Bytes], int]:
    """Return what packs elements of `dtype` and tells the first that `target` does not hold."""
    whole = target.dtype is not None and np.dtype(target.dtype).kind == "i"
    exact_in_float32 = np.can_cast(dtype, np.float32)
    if whole and dtype.kind in "iuf" and not exact_in_float32:
        return _store_whole
    if dtype.kind == "f" or _is_bfloat16(dtype) or (whole and dtype.kind in "iu"):
        return _encode
    raise ValueTypeError(
        f"an array of {dtype} cannot be packed as {target}",
        remedy="Convert it first, for example with `array.astype(np.float32)`",
    )


def _is_own_dtype(dtype: np.dtype[Any], type: TensorType) -> bool:
    if _is_bfloat16(dtype):
        return type.name == "BF16"
    return type.dtype is not None and bool(dtype == np.dtype(type.dtype))


def _is_bfloat16(dtype: np.dtype[Any]) -> bool:
    return bool(dtype.name == "bfloat16")


def _refusal(piece: _Piece, bad: int, target: TensorType) -> ValueTypeError:
    row, column = divmod(bad, piece.view.shape[-1])
    value = piece.view[row, column] if piece.view.ndim > 1 else piece.view[column]
    return ValueTypeError(
        f"{target} does not hold {value!s} (row {piece.row + row}, column {piece.column + column})",
        remedy="Round and clip the array first, or use a float type",
    )


def _packed_bytes(data: Bytes) -> Bytes:
    if isinstance(data, np.ndarray) and data.dtype == np.uint8:
        return data
    kind = data.dtype if isinstance(data, np.ndarray) else type(data).__name__
    raise ValueTypeError(
        f"packed data is an array of uint8, not {kind}",
        remedy="`array.view(np.uint8)` and `np.frombuffer(data, np.uint8)` give one",
    )


def _require_blocks(array: Array, block: int, block_name: str) -> None:
    if array.ndim == 0:
        raise ShapeError("a single number has no rows", remedy="Pass an array of one axis or more")
    if array.shape[-1] % block:
        raise ShapeError(
            f"rows of {array.shape[-1]} do not divide into {block_name} block "
            f"(shape {array.shape})",
            remedy="Choose a type whose blocks fit, or pad the last axis",
        )


def _checked_out(out: Array | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    if out is None:
        return _aligned(shape, dtype)
    if out.shape != shape or out.dtype != dtype or not out.flags.c_contiguous:
        raise ShapeError(
            f"the output is {out.dtype} of shape {out.shape}, not contiguous {dtype} of {shape}"
        )
    return out


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an uninitialized array that begins on a cache line."""
    nbytes = math.prod(shape) * dtype.itemsize
    memory = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + nbytes].view(dtype).reshape(shape)


def _rows(array: Array) -> Array:
    """Return a contiguous array as a matrix, however empty it is."""
    return array.reshape(math.prod(array.shape[:-1]), array.shape[-1])


def _run_all(work: Callable[[_Piece], None], pieces: list[_Piece], threads: int | None) -> None:
    """Call `work` on every piece, in several threads where there are enough of them."""
    if threads is not None and threads < 1:
        raise ValueTypeError(f"{threads} threads cannot work", remedy="Use one or more, or None")
    wanted = min(usable_cores(), len(pieces) // TASKS_PER_THREAD) if threads is None else threads
    if min(wanted, len(pieces)) <= 1:
        for piece in pieces:
            work(piece)
        return
    todo = deque(pieces)

    def drain() -> None:
        while todo:
            try:
                piece = todo.popleft()
            except IndexError:  # another thread was faster
                return
            work(piece)

    with ThreadPoolExecutor(min(wanted, len(pieces))) as pool:
        try:
            for done in [pool.submit(drain) for _ in range(min(wanted, len(pieces)))]:
                done.result()
        finally:
            todo.clear()  # after an error or Ctrl-C no thread goes on


def _weighted_pieces(array: Array, block: int, weights: Floats | None) -> Iterator[_Piece]:
    """Yield the pieces of `array` with their weights: whole rows, as some weights ask for."""
    if weights is None:
        yield from _pieces(array, block, TASK)
    elif weights.ndim == 1:
        for piece in _pieces(array, block, max(TASK, array.shape[-1])):
            yield replace(piece, weights=weights)
    else:
        for index, (expert, own) in enumerate(zip(array, weights, strict=True)):
            for piece in _weighted_pieces(expert, block, own):
                yield replace(piece, row=index * len(expert) + piece.row)


def _pieces(array: Array, block: int, step: int) -> Iterator[_Piece]:
    """Yield all of `array` in order, as views of about `step` units of the last axis."""
    row = 0
    for matrix in _matrices(array) if array.size else ():
        rows, width = matrix.shape
        many = max(1, step // width)
        wide = width if width <= step else step // block * block
        for at in range(0, rows, many):
            for column in range(0, width, wide):
                view = matrix[at : at + many, column : column + wide]
                yield _Piece(row + at, column, view)
        row += rows


def _matrices(array: Array) -> Iterator[Array]:
    """Yield `array` as matrices of its rows, in order and without a copy."""
    if array.ndim == 1:
        yield array[np.newaxis]
    elif array.ndim == 2 or _leading_axes_merge(array):  # noqa: PLR2004 (a matrix)
        yield array.reshape(-1, array.shape[-1])
    else:
        for part in array:
            yield from _matrices(part)


def _leading_axes_merge(array: Array) -> bool:
    """Whether one stride steps through all rows."""
    return all(
        array.strides[axis] == array.strides[axis + 1] * array.shape[axis + 1]
        for axis in range(array.ndim - 2)
    )
