"""Decode tensors into arrays, all of them in parallel and without copies of whole tensors."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ggufkit.errors import TensorTypeError
from ggufkit.format.types import TensorType, tensor_type
from ggufkit.models.model import Tensor
from ggufkit.models.rows import Source
from ggufkit.models.sources import in_order
from ggufkit.quants import codec
from ggufkit.quants.parallel import Numbers, aligned
from ggufkit.system.cancellation import check_cancelled
from ggufkit.system.cpu import worker_count
from ggufkit.system.threads import Progress, pool_of, result_of

PIECE: Final = 1 << 20  # elements: large enough that a read is cheap, small beside any model
BITS16: Final = np.dtype(np.uint16)  # NumPy has no bfloat16: its bits take the place


@dataclass(frozen=True)
class _Piece:
    """Rows of a tensor and the array that they are decoded into."""

    source: Source
    from_type: TensorType
    to_type: TensorType
    start: int
    out: Numbers  # of shape (rows, width)


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
    return np.dtype(type.dtype or (np.uint8 if type.id < 0 else BITS16))


def _shape(tensor: Tensor, type: TensorType) -> tuple[int, ...]:
    """Return the shape of the array, whose last axis counts bytes where it holds bytes."""
    is_bytes = tensor.shape and dtype_of(type) == np.uint8
    return (*tensor.shape[:-1], tensor.row_bytes) if is_bytes else tensor.shape


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
    arrays = [
        aligned(_shape(tensor, kind), dtype_of(kind))
        for tensor, kind in zip(tensors, types, strict=True)
    ]
    _run(
        [
            piece
            for tensor, kind, array in zip(tensors, types, arrays, strict=True)
            for piece in _pieces(tensor, kind, array)
        ],
        threads,
        progress,
    )
    return arrays


def _pieces(tensor: Tensor, type: TensorType, array: Numbers) -> Iterator[_Piece]:
    if not array.size:
        return
    rows = array.reshape(tensor.rows, -1)
    step = max(1, PIECE // rows.shape[1])
    source = in_order(tensor, "little")
    for start in range(0, tensor.rows, step):
        yield _Piece(source, tensor.type, type, start, rows[start : start + step])


def _run(pieces: Sequence[_Piece], threads: int | None, progress: Progress | None) -> None:
    todo = deque(pieces)
    total = sum(piece.out.size for piece in pieces)
    count = min(worker_count(threads), len(todo)) or 1
    counting, ready = threading.Lock(), [0]

    def drain() -> None:
        while True:
            try:
                piece = todo.popleft()
            except IndexError:
                return
            check_cancelled()
            _decode(piece)
            if progress:
                with counting:
                    ready[0] += piece.out.size
                    progress(ready[0], total)

    with pool_of(count) as pool:
        try:
            for task in [pool.submit(drain) for _ in range(count)]:
                result_of(task)
        finally:
            todo.clear()  # after an error or Ctrl-C, stop all threads


def _decode(piece: _Piece) -> None:
    out = piece.out
    packed = piece.source.read(piece.start, piece.start + len(out))
    if piece.from_type == piece.to_type:
        np.copyto(out.view(np.uint8), packed)
    elif out.dtype == np.float32:
        codec.dequantize(packed, piece.from_type, threads=1, out=out)
    else:
        codec.requantize(packed, piece.from_type, piece.to_type, threads=1, out=out.view(np.uint8))
