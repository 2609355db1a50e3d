"""Quantize and dequantize arrays exactly as ggml does, faster.

Shapes are as in gguf-py: the last axis of the packed form counts bytes instead of elements.
Large arrays use all cores; GGUFKIT_ISA forces an instruction set, such as `v2` or `portable`.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

import ggufkit._native as _native
from ggufkit.errors import ShapeError, TensorTypeError, ValueTypeError
from ggufkit.format.types import TensorType, tensor_type
from ggufkit.quants import kernels, parallel
from ggufkit.quants.block_fields import NUMPY, separate_blocks
from ggufkit.quants.block_parts import LAYOUTS
from ggufkit.quants.ik_interleaved import (
    OWN_LAYOUTS,
    require_groups,
    separated,
    separated_type,
)
from ggufkit.quants.parallel import ArrayPiece, Floats, Numbers
from ggufkit.quants.search import Search
from ggufkit.system.cpu import instruction_set
from ggufkit.system.mapped_file import Bytes

AnyType = TensorType | str | int

BYTES: Final = np.dtype(np.uint8)
FLOAT: Final = np.dtype(np.float32)


def quantize(  # noqa: PLR0913 (each option says one thing)
    array: npt.ArrayLike,
    type: AnyType,
    *,
    imatrix: npt.ArrayLike | None = None,
    search: Search | None = None,
    threads: int | None = None,
    out: Bytes | None = None,
) -> Bytes:
    """Return `array` packed as `type`: shape (..., width) becomes (..., bytes of a row).

    Takes float16, bfloat16 (of ml_dtypes, or its bits as uint16), float32 and float64 in any
    strides, and converts piece by piece to float32; integer types take integers too.
    An array of the type's own dtype keeps its bytes; the result is a view if it is contiguous.
    `imatrix` holds a weight per column, of shape (width,), or (experts, width) for an array of
    three axes; types without weighted encoding ignore it. `search` ("better" or "best") looks for
    blocks with smaller errors than ggml's, in the same format; types without a search ignore it.
    `out`, if given, is filled and returned: contiguous uint8 of the resulting shape, not
    overlapping `array`.

    Raises TensorTypeError for a type that has no encoder or requires weights, ShapeError where
    rows do not divide into blocks or weights or `out` do not fit, ValueTypeError for other dtypes,
    for weights that are not finite, and for values that the type cannot hold.
    """
    target = encodable(type)
    source = np.asarray(array)
    shape = _shape_in_bytes(source.shape, target)
    weights = kernels.column_weights(imatrix, source.shape, target)
    native = source.dtype.newbyteorder("=")
    if kernels.is_own_dtype(native, target):
        same = np.ascontiguousarray(source, native).view(np.uint8)
        return same if out is None else _copied(same, _checked_out(out, shape, BYTES, source))
    encode = kernels.encoder(source.dtype, target, search)
    blocks = _checked_out(out, shape, BYTES, source)
    run = functools.partial(_encode_piece, encode, target, parallel.as_rows(blocks))
    unit = kernels.encoded_together(target, source.shape[-1])
    work = parallel.cut(source, unit, parallel.TASK, weights)
    parallel.run_all(run, list(work), threads)
    return blocks


def dequantize(
    data: Bytes,
    type: AnyType,
    *,
    dtype: npt.DTypeLike = np.float32,
    threads: int | None = None,
    out: Numbers | None = None,
) -> Numbers:
    """Return the elements of packed `data`: the inverse of `quantize`.

    `data` is uint8 of shape (..., bytes of a row), in any strides. `dtype` is float32, float16 or
    ml_dtypes.bfloat16, or the string "bfloat16", which gives the bits of bfloat16 as uint16; they
    are rounded as ggml rounds. A plain type of that dtype gives a view where possible. `out`, if
    given, is filled and returned: contiguous, of the resulting shape and dtype, not overlapping
    `data`.

    Raises TensorTypeError for a type that has no decoder, ShapeError where rows do not divide into
    blocks or `out` does not fit, ValueTypeError for another dtype.
    """
    source = decodable(type)
    blocks = _rows_of_blocks(data, source)
    target, plain = _float_dtype(dtype)
    is_aligned = blocks.flags.c_contiguous and blocks.ctypes.data % target.itemsize == 0
    if source == plain and out is None and is_aligned:
        return blocks.view(target)
    elements = _checked_out(out, _shape_in_elements(blocks.shape, source), target, blocks)
    if source.program and plain.dtype == "f4":
        _decode_whole_rows(blocks, source, elements, threads)
    elif plain.dtype == "f4" and source != plain:
        _decode_all(blocks, source, elements, threads)
    else:
        requantize(blocks, source, plain, threads=threads, out=elements.view(np.uint8))
    return elements


def requantize(  # noqa: PLR0913 (two types, and the options of `quantize`)
    data: Bytes,
    from_type: AnyType,
    to_type: AnyType,
    *,
    imatrix: npt.ArrayLike | None = None,
    threads: int | None = None,
    out: Bytes | None = None,
) -> Bytes:
    """Return packed `data` of one type as another: tile by tile, through float32, as llama.cpp.

    Integers become integers exactly. If the types are equal, `data` is returned unchanged.
    `imatrix`, `threads` and `out` are those of `quantize`. Raises as `dequantize` and `quantize`
    do.
    """
    source, target = decodable(from_type), encodable(to_type)
    blocks = _rows_of_blocks(data, source)
    elements = _shape_in_elements(blocks.shape, source)
    shape = _shape_in_bytes(elements, target)
    weights = kernels.column_weights(imatrix, elements, target)
    if source.program and source != target:
        blocks = dequantize(blocks, source, threads=threads).view(np.uint8)
        source = tensor_type("F32")
    if source == target:
        return blocks if out is None else _copied(blocks, _checked_out(out, shape, BYTES, blocks))
    result = _checked_out(out, shape, BYTES, blocks)
    rows = parallel.as_rows(result)

    def run(piece: ArrayPiece) -> None:
        view = kernels.decoded_for(target, piece.view, source)
        column = piece.column // source.block_bytes * source.block_size
        decoded = replace(piece, view=view, column=column)
        _encode_piece(kernels.encoder(view.dtype, target), target, rows, decoded)

    tile = math.lcm(source.block_size, kernels.encoded_together(target, elements[-1]))
    step = source.row_bytes(max(tile, parallel.TASK // tile * tile))
    work = parallel.cut(blocks, source.row_bytes(tile), step, weights)
    parallel.run_all(run, list(work), threads)
    return result


def encode_rows(
    rows: Floats,
    type: AnyType,
    out: Bytes | None = None,
    *,
    imatrix: npt.ArrayLike | None = None,
    search: Search | None = None,
) -> Bytes:
    """Pack contiguous float32 `rows` (n, width) into `out` (n, bytes of a row), in this thread.

    Releases the interpreter lock. `imatrix` has shape (width,); `search` works as in `quantize`.
    Raises as `quantize` does.
    """
    target = encodable(type)
    rows = np.asarray(rows)
    blocks = _checked_out(out, _shape_in_bytes(rows.shape, target), BYTES, rows)
    weights = kernels.column_weights(imatrix, rows.shape[-1:], target)
    encode = kernels.encoder(rows.dtype, target, search)
    _encode_piece(encode, target, blocks, ArrayPiece(0, 0, rows, weights))
    return blocks


def _encode_piece(
    encode: kernels.Encoder, target: TensorType, rows: Bytes, piece: ArrayPiece
) -> None:
    row, column, view = piece.row, piece.column, piece.view
    start = target.row_bytes(column) - target.row_prefix  # with a prefix, pieces are whole rows
    stop = target.row_bytes(column + view.shape[-1])
    part = rows[row : row + len(view), start:stop].reshape(-1)
    bad = encode(view, piece.weights, target, part)
    if bad >= 0:
        raise _refusal(view, bad, target, row, column)


def decode_rows(data: Bytes, type: AnyType, out: Floats | None = None) -> Floats:
    """Unpack contiguous uint8 rows (n, bytes of a row) into `out` (n, width), in this thread.

    Releases the interpreter lock. Raises as `dequantize` does.
    """
    source = decodable(type)
    blocks = _rows_of_blocks(data, source)
    elements = _checked_out(out, _shape_in_elements(blocks.shape, source), FLOAT, blocks)
    if source.program:
        _decode_whole_rows(blocks, source, elements, 1)
    else:
        kernels.decode(blocks, source, elements.reshape(-1), streaming=False)
    return elements


def validate(data: Bytes, type: AnyType) -> int | None:
    """Return the first block that ggml's row validation refuses (NaN or infinite scales), or None.

    Blocks are numbered from 0 across all rows. Raises as `dequantize` does.
    """
    source = decodable(type)
    if source.program:
        raise TensorTypeError(f"ggml does not know {source}", remedy="Look at its elements")
    flat = np.ascontiguousarray(_rows_of_blocks(data, source)).reshape(-1)
    bad = _native.validate(source.id, flat, instruction_set())
    return bad if bad >= 0 else None


def encodable(type: AnyType) -> TensorType:
    """Return the row of a type that `quantize` takes; raise TensorTypeError for any other."""
    kind = tensor_type(type)
    if not kernels.has_encoder(kind):
        can = ", ".join(
            tensor_type(key).name for key, encodes in kernels.codecs().items() if encodes
        )
        raise TensorTypeError(f"{kind} cannot be encoded", remedy=f"Use one of {can}")
    return kind


def decodable(type: AnyType) -> TensorType:
    """Return the row of a type that `dequantize` takes; raise TensorTypeError for any other."""
    kind = tensor_type(type)
    if not can_decode(kind):
        can = ", ".join(kind.name for kind in TensorType if can_decode(kind))
        raise TensorTypeError(f"{kind} cannot be decoded", remedy=f"Use one of {can}")
    return kind


def can_decode(type: TensorType) -> bool:
    """Whether `dequantize` takes a type."""
    if type.program is None:
        return kernels.has_kernel(type)
    return type.name in LAYOUTS or type.interleaved > 1


def check_requantize(source: AnyType, target: AnyType) -> None:
    """Raise TensorTypeError unless `source` has a decoder and `target` an encoder."""
    decodable(source)
    encodable(target)


def _decode_all(blocks: Bytes, source: TensorType, elements: Floats, threads: int | None) -> None:
    rows = parallel.as_rows(elements)
    streaming = elements.nbytes > _native.last_level_cache_bytes()

    def run(piece: ArrayPiece) -> None:
        start = piece.column // source.block_bytes * source.block_size
        stop = start + piece.view.shape[-1] // source.block_bytes * source.block_size
        part = rows[piece.row : piece.row + len(piece.view), start:stop]
        kernels.decode(piece.view, source, part.reshape(-1), streaming=streaming)

    step = parallel.TASK // source.block_size * source.block_bytes
    parallel.run_all(run, list(parallel.cut(blocks, source.block_bytes, step)), threads)


def _decode_whole_rows(
    blocks: Bytes, source: TensorType, elements: Floats, threads: int | None
) -> None:
    """Decode a type of another program, whose blocks may depend on the others of their rows."""
    rows, row_bytes = parallel.as_rows(elements), max(blocks.shape[-1], 1)

    def run(piece: ArrayPiece) -> None:
        rows[piece.row : piece.row + len(piece.view)] = _whole_rows(piece.view, source)

    group = source.interleaved
    step = row_bytes * group * max(1, parallel.TASK // max(rows.shape[-1] * group, 1))
    parallel.run_all(run, list(parallel.cut(blocks, row_bytes, step)), threads)


def _whole_rows(packed: Bytes, source: TensorType) -> Floats:
    kind, layouts = source, LAYOUTS
    if source.interleaved > 1:
        packed, kind = separated(packed, source), separated_type(source)
        layouts = LAYOUTS if source.plain else OWN_LAYOUTS
    if kind.program is None:
        return decode_rows(packed, kind)
    with np.errstate(all="ignore"):  # scales of a broken block may be infinite
        values: Floats = layouts[kind.name](separate_blocks(packed, kind, NUMPY)).values()
    return values.reshape(len(packed), -1)


def _float_dtype(dtype: npt.DTypeLike) -> tuple[np.dtype[Any], TensorType]:
    try:
        target = np.dtype(np.uint16 if isinstance(dtype, str) and dtype == "bfloat16" else dtype)
    except TypeError:
        target = None
    for name in ("F32", "F16", "BF16"):
        if target is not None and kernels.is_own_dtype(target, tensor_type(name)):
            return target, tensor_type(name)
    raise ValueTypeError(
        f"cannot dequantize to {target or dtype}",
        remedy='Use float32, float16, ml_dtypes.bfloat16 or "bfloat16"',
    )


def _refusal(view: Numbers, bad: int, target: TensorType, row: int, column: int) -> ValueTypeError:
    down, right = divmod(bad, view.shape[-1])
    right -= right % target.block_size
    block = view.reshape(-1, view.shape[-1])[down, right : right + target.block_size]
    row, column = row + down, column + right
    if target.block_size == 1:
        return ValueTypeError(
            f"{target} does not hold {block[0]!s} (row {row}, column {column})",
            remedy="Round and clip the array first, or use a float type",
        )
    place = f"in a block that llama.cpp aborts on (row {row}, columns from {column} on)"
    unusable = block[~np.isfinite(block)]
    if unusable.size:
        message = f"{target} does not hold {unusable[0]!s}, {place}"
        return ValueTypeError(message, remedy="Replace it before quantizing")
    return ValueTypeError(
        f"{target} does not hold numbers this large or far apart, {place}",
        remedy="Use a type that needs no grid, such as Q4_K or IQ4_XS",
    )


def _rows_of_blocks(data: Bytes, source: TensorType) -> Bytes:
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8:
        actual = f"one of {data.dtype}" if isinstance(data, np.ndarray) else _kind(data)
        raise ValueTypeError(
            f"packed data must be an array of uint8, not {actual}",
            remedy="Use `array.view(np.uint8)` or `np.frombuffer(data, np.uint8)`",
        )
    name = f"the {source.block_bytes} bytes of a {source}"
    remedy = "Pass whole rows, with the type that they were packed as"
    if source.row_prefix and data.shape:
        if data.shape[-1] < source.row_prefix:
            raise ShapeError(
                f"a row of {data.shape[-1]} bytes is shorter than the {source.row_prefix} bytes "
                f"before the blocks of each row of {source}",
                remedy=remedy,
            )
        name = f"a prefix of {source.row_prefix} bytes and {name}"
    shape = data.shape[:-1] + tuple(size - source.row_prefix for size in data.shape[-1:])
    _require_blocks(shape, source.block_bytes, name, remedy)
    require_groups(math.prod(data.shape[:-1]), source)
    return data


def _kind(value: object) -> str:
    return f"of class {type(value).__name__}"


def _shape_in_bytes(shape: tuple[int, ...], target: TensorType) -> tuple[int, ...]:
    name = f"the {target.block_size} elements of a {target}"
    remedy = "Choose a type whose blocks fit, or pad the last axis"
    _require_blocks(shape, target.block_size, name, remedy)
    return (*shape[:-1], target.row_bytes(shape[-1]))


def _shape_in_elements(shape: tuple[int, ...], source: TensorType) -> tuple[int, ...]:
    return (*shape[:-1], source.width(shape[-1]))


def _require_blocks(shape: tuple[int, ...], block: int, block_name: str, remedy: str) -> None:
    if not shape:
        raise ShapeError("a single number has no rows", remedy="Pass an array of one axis or more")
    if shape[-1] % block:
        raise ShapeError(
            f"rows of {shape[-1]} do not divide into {block_name} block (shape {shape})",
            remedy=remedy,
        )


def _checked_out(
    out: Numbers | None, shape: tuple[int, ...], dtype: np.dtype[Any], source: Numbers
) -> Numbers:
    if out is None:
        return parallel.aligned(shape, dtype)
    if not isinstance(out, np.ndarray) or out.shape != shape or out.dtype != dtype:
        actual = f"{out.dtype} of shape {out.shape}" if isinstance(out, np.ndarray) else _kind(out)
        raise ShapeError(f"the output is {actual}", remedy=f"Pass {dtype} of shape {shape}")
    if not (out.flags.c_contiguous and out.flags.aligned and out.flags.writeable):
        raise ShapeError(
            "the output is not contiguous, aligned and writable",
            remedy=f"Pass such an array, as `np.empty({shape}, {dtype.name!r})` gives",
        )
    if np.may_share_memory(out, source):
        raise ShapeError(
            "the output overlaps the input",
            remedy="Pass an array that shares no memory with the input",
        )
    return out


def _copied(source: Numbers, out: Numbers) -> Numbers:
    np.copyto(out, source)
    return out
