"""Where tensor bytes come from: a range of a file, an array, or another tensor transformed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np

from ggufkit.errors import ShapeError, TensorTypeError, ValueTypeError
from ggufkit.format.byte_order import is_bytewise, to_byte_order
from ggufkit.format.encoding import ByteOrder
from ggufkit.format.types import TENSOR_TYPES, TensorType, tensor_type
from ggufkit.models.model import Tensor
from ggufkit.models.rows import AnyFile, ComputedRows, Source, Span, rows_and_width
from ggufkit.quants import codec, ik_interleaved, kernels
from ggufkit.quants.parallel import Floats
from ggufkit.quants.search import Search
from ggufkit.system.mapped_file import Bytes

TOKEN_EMBEDDINGS: Final = ("token_embd.weight", "per_layer_token_embd.weight")
_TYPE_OF_DTYPE: Final = {np.dtype(t.dtype): t for t in TENSOR_TYPES.values() if t.dtype}


class FileSource(NamedTuple):
    """Rows in a file from byte `offset` on.

    A tuple, because opening a file makes one for each tensor.
    """

    file: AnyFile
    offset: int
    nbytes: int
    row_bytes: int
    byte_order: ByteOrder

    @property
    def span(self) -> Span:
        """The bytes in the file."""
        return Span(self.file, self.offset, self.nbytes)

    def read(self, start: int, stop: int) -> Bytes:
        """Return rows read from the file; FormatError if it has changed since it was opened."""
        rows = stop - start
        data = self.file.read(self.offset + start * self.row_bytes, rows * self.row_bytes)
        return data.reshape(rows, self.row_bytes)


@dataclass(frozen=True, eq=False)  # arrays do not compare to one bool
class ArraySource(ComputedRows):
    """Rows of packed bytes in memory, in the machine's little-endian form."""

    data: Bytes

    def read(self, start: int, stop: int) -> Bytes:
        """Return a view of the rows."""
        return self.data[start:stop]


@dataclass(frozen=True, eq=False)  # arrays do not compare to one bool
class EncodedNumbers(ComputedRows):
    """Rows of numbers in memory, encoded as `type` when they are read."""

    name: str
    rows: np.ndarray[Any, Any]
    type: TensorType

    def read(self, start: int, stop: int) -> Bytes:
        """Encode rows; raise ValueTypeError for a number that an integer cannot hold."""
        try:
            return codec.quantize(self.rows[start:stop], self.type, threads=1)
        except ValueTypeError as error:
            message = f"tensor {self.name!r}, rows from {start} on: {error.message}"
            raise ValueTypeError(message, remedy=error.remedy) from None


@dataclass(frozen=True, eq=False, slots=True)  # arrays do not compare to one bool
class QuantizedSource(ComputedRows):
    """Another tensor's rows, decoded to float32 and encoded as `type`, as llama.cpp does.

    `weights` is the importance of each column: shape (width,), or (matrices, width) for a stack of
    matrices. `search` works as in `quants.quantize`.
    """

    tensor: Tensor
    type: TensorType
    weights: Floats | None = None
    search: Search | None = None

    def read(self, start: int, stop: int) -> Bytes:
        """Decode and encode rows `start` to `stop`."""
        blocks = self.origin.read(start, stop)
        if self.passes_floats:
            return self.encode(codec.dequantize(blocks, self.tensor.type, threads=1), start)
        return codec.requantize(blocks, self.tensor.type, self.type, threads=1)

    @property
    def origin(self) -> Source:
        """The rows to decode, in little-endian order as decoders require."""
        return in_order(self.tensor, "little")

    @property
    def passes_floats(self) -> bool:
        """Whether rows pass through float32: all do except integers that stay integers."""
        return not kernels.is_integer(self.type)

    def requantize(self, blocks: Bytes, start: int, out: Bytes, tile: Floats) -> None:
        """Fill `out` from rows of the origin; `start` is the number of the first row.

        `tile` is memory for the decoded rows: those that fit are decoded and encoded together.
        Raises as `encode` does.
        """
        for part, weights in self._weighted(start, start + len(blocks)):
            rows, kind = blocks[part], self.tensor.type
            if not kernels.requantize(rows, kind, self.type, out[part], tile, weights, self.search):
                self.encode(codec.decode_rows(rows, kind), start + part.start)  # raises

    def encode(self, rows: Floats, start: int) -> Bytes:
        """Encode rows; `start` is the number of the first.

        Raises ValueTypeError for infinities and NaN, which blocks cannot hold.
        """
        if self.type.is_quantized and not np.isfinite(rows).all():
            row, column = (int(axis[0]) for axis in np.nonzero(~np.isfinite(rows)))
            raise ValueTypeError(
                f"tensor {self.tensor.name!r} holds {rows[row, column]} in row {start + row}, "
                f"column {column}, which {self.type} cannot",
                remedy="The model is damaged, and llama.cpp also refuses it: download it again, or "
                "keep the type of the tensor",
            )
        out = np.empty((len(rows), self.type.row_bytes(rows.shape[-1])), np.uint8)
        for part, weights in self._weighted(start, start + len(rows)):
            codec.encode_rows(rows[part], self.type, out[part], imatrix=weights, search=self.search)
        return out

    def _weighted(self, start: int, stop: int) -> Iterator[tuple[slice, Floats | None]]:
        weights = self.weights
        if weights is None or weights.ndim == 1:
            yield slice(0, stop - start), weights
            return
        per_matrix = max(self.tensor.shape[-2], 1)
        for matrix in range(start // per_matrix, -(-stop // per_matrix)):
            first, last = matrix * per_matrix, (matrix + 1) * per_matrix
            part = slice(max(first, start) - start, min(last, stop) - start)
            yield part, weights[matrix % len(weights)]


@dataclass(frozen=True)
class Swapped:
    """Another source in the other byte order."""

    inner: Source
    type: TensorType
    byte_order: ByteOrder
    span: ClassVar[None] = None

    def read(self, start: int, stop: int) -> Bytes:
        """Read and swap rows `start` to `stop`."""
        data = self.inner.read(start, stop)
        return to_byte_order(data, self.type, self.inner.byte_order, self.byte_order)


def in_order(tensor: Tensor, byte_order: ByteOrder) -> Source:
    """Return the tensor's source in `byte_order`; unchanged if swapping would move no byte."""
    if tensor.source.byte_order == byte_order or is_bytewise(tensor.type):
        return tensor.source
    return Swapped(tensor.source, tensor.type, byte_order)


@dataclass(frozen=True, eq=False)
class GroupedRows(ComputedRows):
    """Rows that `rewrite` makes from whole groups of `group` rows of a tensor, read together."""

    tensor: Tensor
    group: int
    rewrite: Callable[[Bytes], Bytes]

    def read(self, start: int, stop: int) -> Bytes:
        """Read whole groups, and return rows `start` to `stop` of what becomes of them."""
        first, last = start // self.group * self.group, -(-stop // self.group) * self.group
        packed = in_order(self.tensor, "little").read(first, last)
        return self.rewrite(np.ascontiguousarray(packed))[start - first : stop - first]


def separable(tensor: Tensor) -> Tensor:
    """Return a tensor that can be read between any two blocks, by ggml's decoders.

    For a type of another program this is F32; others, and types without a decoder, stay.
    """
    if tensor.type.program is None or not codec.can_decode(tensor.type):
        return tensor
    ik_interleaved.require_groups(tensor.rows, tensor.type)
    source = GroupedRows(
        tensor,
        tensor.type.interleaved,
        lambda rows: codec.dequantize(rows, tensor.type, threads=1).view(np.uint8),
    )
    return Tensor.over(tensor.name, tensor_type("F32"), tensor.shape, source)


def deinterleaved(tensor: Tensor) -> Tensor:
    """Return interleaved rows as their plain type, without loss; other tensors unchanged.

    Raises ShapeError where the rows are not whole groups.
    """
    kind = tensor.type
    if kind.plain is None:
        return tensor
    return _regrouped(tensor, kind, tensor_type(kind.plain), ik_interleaved.separated)


def can_interleave(tensor: Tensor, type: TensorType) -> bool:
    """Whether ik_llama.cpp stores a tensor as this interleaved type.

    Each matrix needs whole groups of rows. It reads single rows of token embeddings.
    """
    height, width = tensor.shape[-2:] if len(tensor.shape) > 1 else (1, 0)
    is_odd = type.block_size == 1 and width % 2  # BF16_R16 has pairs of columns
    return tensor.name not in TOKEN_EMBEDDINGS and not height % type.interleaved and not is_odd


def interleaved(tensor: Tensor, type: TensorType) -> Tensor:
    """Return rows of `type.plain` as `type`, without loss: the inverse of `deinterleaved`.

    Raises ShapeError where the rows are not whole groups.
    """
    return _regrouped(tensor, type, type, ik_interleaved.interleaved)


def _regrouped(
    tensor: Tensor,
    grouped: TensorType,
    target: TensorType,
    rewrite: Callable[[Bytes, TensorType], Bytes],
) -> Tensor:
    ik_interleaved.require_groups(tensor.rows, grouped)
    source = GroupedRows(tensor, grouped.interleaved, lambda rows: rewrite(rows, grouped))
    return Tensor.over(tensor.name, target, tensor.shape, source)


def retyped(
    tensor: Tensor,
    type: str | int | TensorType,
    weights: Floats | None = None,
    search: Search | None = None,
) -> Tensor:
    """Return `tensor` as another type: decoded to float32 and quantized when written.

    `weights` is the importance of its columns, and `search` looks for better blocks (see
    `QuantizedSource`). Raises ShapeError where rows do not divide into blocks, TensorTypeError for
    opaque types.
    """
    target = tensor_type(type)
    if target == tensor.type:
        return tensor
    if target.plain:
        return interleaved(retyped(tensor, target.plain, weights, search), target)
    _check_requantize(tensor.type, target)
    source = QuantizedSource(separable(tensor), target, weights, search)
    return Tensor.over(tensor.name, target, tensor.shape, source)


_check_requantize = functools.lru_cache(codec.check_requantize)


def from_array(
    name: str, array: np.ndarray[Any, Any], type: str | int | TensorType | None = None
) -> Tensor:
    """Return the tensor of a NumPy array: in its own dtype, or packed as `type` when written.

    An array of uint8 together with a `type` holds rows already packed, and one of uint16 the bits
    of bfloat16. Float and signed integer dtypes have a tensor type of their own. Raises
    TensorTypeError for a dtype or type that cannot be written, ShapeError where rows do not divide
    into blocks, ValueTypeError for integers as a float type.
    """
    if type is not None and array.dtype == np.uint8:
        return _from_blocks(name, array, tensor_type(type))
    is_bits = type is not None and array.dtype == np.uint16  # of bfloat16
    stored = tensor_type("BF16") if is_bits else _type_of(name, array.dtype)
    target = stored if type is None else codec.encodable(type)
    count, width = rows_and_width(array.shape)
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    source = EncodedNumbers(name, native.reshape(count, width), target)
    tensor = Tensor.over(name, target, array.shape, source)
    if target != stored:
        source.read(0, 0)  # raises now for a dtype that cannot be packed
        return tensor
    return replace(tensor, source=ArraySource(source.read(0, count)))


def _from_blocks(name: str, data: Bytes, type: TensorType) -> Tensor:
    nbytes = data.shape[-1] if data.ndim else 1
    if type.is_opaque or nbytes != type.row_bytes(type.width(nbytes)):
        raise ShapeError(
            f"tensor {name!r}: rows of {nbytes} bytes do not divide into the blocks of "
            f"{type.block_bytes} bytes of {type}",
            remedy="The last axis counts bytes, as `ggufkit.quants.quantize` returns them",
        )
    width = type.width(nbytes)
    shape = (*data.shape[:-1], width) if data.ndim else ()
    source = ArraySource(np.ascontiguousarray(data).reshape(rows_and_width(shape)[0], nbytes))
    return Tensor.over(name, type, shape, source)


def _type_of(name: str, dtype: np.dtype[Any]) -> TensorType:
    kind = _TYPE_OF_DTYPE.get(dtype.newbyteorder("="))
    if kind is None and dtype.name == "bfloat16":
        return tensor_type("BF16")
    if kind is None:
        dtypes = ", ".join(str(d) for d in _TYPE_OF_DTYPE)
        raise TensorTypeError(
            f"tensor {name!r}: no tensor type holds NumPy's {dtype}",
            remedy=f"Convert to one of {dtypes}, or give packed bytes with their type",
        )
    return kind
