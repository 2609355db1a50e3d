"""Quantize and dequantize arrays exactly as ggml does, faster.

Shapes are as in gguf-py: the last axis of the packed form counts bytes instead of elements.
Large arrays use all cores; GGUFKIT_ISA forces an instruction set, such as `v2` or `portable`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
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

TASK: Final = 1 << 20  # elements of one thread's turn: long beside what starting it costs
CHUNK: Final = 1 << 16  # elements converted to float32 at a time: they stay in a core's cache
ALIGNMENT: Final = 64  # bytes: streaming stores want whole cache lines


def instruction_sets() -> tuple[str, ...]:
    """Return the instruction sets that this machine runs, the fastest first."""
    return tuple(_native.instruction_sets())


@functools.cache
def instruction_set() -> str:
    """Return the instruction set in use: the fastest, or the one that GGUFKIT_ISA names.

    Raises GGUFError when GGUFKIT_ISA names none that this machine runs.
    """
    runnable = instruction_sets()
    forced = os.environ.get("GGUFKIT_ISA") or runnable[0]
    if forced not in runnable:
        raise GGUFError(
            f"GGUFKIT_ISA asks for the instruction set {forced!r}, which cannot run here",
            remedy=f"Use one of {', '.join(runnable)}, or unset it",
        )
    return forced


def usable_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def quantize(array: npt.ArrayLike, type: AnyType, *, threads: int | None = None) -> Bytes:
    """Return `array` packed as `type`: shape (..., width) becomes (..., bytes of a row).

    Takes float16, bfloat16 (of ml_dtypes), float32 and float64 arrays in any strides and converts
    them to float32 as it goes; integer types take integers too. An array that has the type's own
    dtype keeps its exact bytes (and is not copied where it is contiguous). By default large arrays
    use all cores. Raises TensorTypeError for a type that cannot be encoded, ShapeError where rows
    do not divide into blocks, ValueTypeError for other dtypes and for values that an integer type
    does not hold exactly.
    """
    target = _encodable(type)
    source = np.asarray(array)
    _require_shape(source, target.block_size, f"elements of {target}")
    own = _own_dtype(source, target)
    if own is not None:
        return _bytes_of(np.ascontiguousarray(source, own))
    convert = _conversion(source, target)
    rows, width = _rows_and_width(source)
    packed = _aligned_empty((rows, target.row_bytes(width)), np.dtype(np.uint8))

    def pack(piece: _Piece) -> None:
        part = convert(piece.of(source_rows))
        bad = _encode(part, target, piece.of(packed, target))
        if bad >= 0:
            first = (piece.first_row * width + piece.first_column) + bad
            raise _refusal(target, part.reshape(-1)[bad], first)

    for source_rows, first_row in _as_matrices(source):
        shifted = packed[first_row : first_row + len(source_rows)]
        _run(pack, source_rows, shifted)
    return packed.reshape(*source.shape[:-1], packed.shape[-1])
