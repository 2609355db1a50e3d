"""A lazy tensor: a name, a shape, a type and a source of rows."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt

from ggufkit.errors import ShapeError, TensorTypeError, brief
from ggufkit.format.byte_order import to_byte_order
from ggufkit.format.html import definitions
from ggufkit.format.types import TensorType
from ggufkit.models.rows import (
    Columns,
    PickedColumns,
    PickedRows,
    Rows,
    Source,
    Unplaced,
    rows_and_width,
)
from ggufkit.quants import codec
from ggufkit.system.mapped_file import Bytes

CHUNK_ELEMENTS: Final = 1 << 22  # 16 MiB of float32
Elements = np.ndarray[Any, np.dtype[Any]]
Index = int | slice | list[int] | npt.NDArray[Any]


@dataclass(frozen=True, slots=True, repr=False)
class Tensor:
    """A named tensor: `shape` in NumPy order (the last axis is packed), `type`, and a source.

    Nothing is read before `raw` or `numpy` is called. `tensor[i]`, `tensor[a:b]` and `tensor[ids]`
    are tensors of these rows of the first axis, also lazy. An opaque type has no known layout: only
    `raw` works.
    """

    name: str
    type: TensorType
    shape: tuple[int, ...]
    nbytes: int
    source: Source

    @classmethod
    def over(cls, name: str, type: TensorType, shape: tuple[int, ...], source: Source) -> Tensor:
        """Make a tensor; its size follows from its type and shape.

        Raises ShapeError where the last axis does not divide into blocks.
        """
        rows, width = rows_and_width(shape)
        if type.is_opaque or width % type.block_size:
            raise ShapeError(
                f"tensor {name!r}: rows of {width} elements do not divide into the blocks of "
                f"{type.block_size} of {type}",
                remedy="Use a type whose block divides the row, such as F16",
            )
        return cls(name, type, shape, rows * type.row_bytes(width), source)

    @property
    def rows(self) -> int:
        """Rows of the last axis, all other axes together (1 for opaque types)."""
        return 1 if self.type.is_opaque else rows_and_width(self.shape)[0]

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of the last axis (the whole of an opaque tensor)."""
        if self.type.is_opaque:
            return self.nbytes
        return self.type.row_bytes(rows_and_width(self.shape)[1])

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def size(self) -> int:
        """Number of elements, as NumPy calls it."""
        return self.elements

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype that `numpy` returns: a plain type's own, float32 for all others.

        Raises TensorTypeError for an opaque type.
        """
        require_decodable(self)
        return np.dtype(self.type.dtype or np.float32)

    @property
    def offset(self) -> int | None:
        """Byte position in its file, None for a tensor that is not in a file."""
        span = self.source.span
        return span.offset if span else None

    @property
    def path(self) -> Path | None:
        """Its file, None for a tensor that is not in a file."""
        span = self.source.span
        return span.file.path if span else None

    @property
    def is_whole(self) -> bool:
        """Whether its file has all its bytes: not where `open(partial=True)` opened a cut file."""
        span = self.source.span
        if span is None:
            return not isinstance(self.source, Unplaced)
        return span.offset + span.nbytes <= span.file.nbytes

    def raw(self) -> Bytes:
        """Return the bytes as uint8, zero-copy from the memory map where they lie in a file.

        The shape is `shape` with the last axis counted in bytes; flat for opaque types.
        """
        data = self._bytes()
        return data if self.type.is_opaque else data.reshape(*self.shape[:-1], self.row_bytes)

    def numpy(
        self,
        dtype: npt.DTypeLike | None = None,
        *,
        out: Elements | None = None,
        copy: bool | None = None,
    ) -> Elements:
        """Return the elements in `shape`: plain types in their dtype, all others as float32.

        `dtype` asks for another dtype; float16, ml_dtypes.bfloat16, and "bfloat16" (its bits as
        uint16) are decoded to directly. `out` is filled and returned. A plain tensor in native byte
        order is a read-only view of the file, unless `copy` is true; with `copy=False` anything
        that is not a view raises ValueError. Raises TensorTypeError for an opaque type.
        """
        require_decodable(self)
        if out is not None:
            return self._into(out, dtype)
        target = self.dtype if dtype is None else dtype
        if not self._is_stored_as(target):
            if copy is False:
                raise ValueError(f"{self!r} must be decoded, which makes a copy")
            return self._decoded(target)
        stored = self._bytes().view("u2" if self.type.dtype is None else f"<{self.type.dtype}")
        return stored.reshape(self.shape).copy() if copy else stored.reshape(self.shape)

    def _is_stored_as(self, dtype: npt.DTypeLike) -> bool:
        if self.source.byte_order != "little":
            return False
        if isinstance(dtype, str) and dtype == "bfloat16":
            return self.type.name == "BF16"
        return self.type.dtype is not None and np.dtype(dtype) == np.dtype(self.type.dtype)

    def _decoded(self, dtype: npt.DTypeLike) -> Elements:
        is_bits = isinstance(dtype, str) and dtype == "bfloat16"
        rows = self.source.read(0, self.rows)
        native = to_byte_order(rows, self.type, self.source.byte_order, "little")
        if self.type.dtype is not None and not is_bits:
            flat = np.ascontiguousarray(native).reshape(-1)
            return flat.view(f"<{self.type.dtype}").reshape(self.shape).astype(dtype)
        is_direct = is_bits or np.dtype(dtype).name in {"float32", "float16", "bfloat16"}
        values = codec.dequantize(native, self.type, dtype=dtype if is_direct else np.float32)
        values = values.reshape(self.shape)
        return values if is_direct else values.astype(dtype)

    def _into(self, out: Elements, dtype: npt.DTypeLike | None) -> Elements:
        if not isinstance(out, np.ndarray) or out.shape != self.shape:
            shape = getattr(out, "shape", None)
            raise ShapeError(
                f"tensor {self.name!r} of shape {self.shape} does not fit `out` of {shape}",
                remedy="Pass an array of the tensor's shape",
            )
        is_bits = isinstance(dtype, str) and dtype == "bfloat16"
        target = out.dtype if dtype is None or is_bits else np.dtype(dtype)
        if target != out.dtype or (is_bits and out.dtype != np.uint16):
            raise ValueError(f"`out` is of {out.dtype}, but `dtype` is {dtype}")
        is_packed = self.type.dtype is None and self.shape and out.flags.c_contiguous
        if is_packed and target.name in {"float32", "float16", "bfloat16"}:
            rows = self.source.read(0, self.rows)
            native = to_byte_order(rows, self.type, self.source.byte_order, "little")
            flat = out.reshape(self.rows, self.shape[-1])
            codec.dequantize(native, self.type, dtype=target, out=flat)
        else:
            np.copyto(out, self.numpy("bfloat16" if is_bits else target), casting="unsafe")
        return out

    def _bytes(self) -> Bytes:
        span = self.source.span
        if span:
            return span.file.view(span.offset, span.nbytes)
        return np.ascontiguousarray(self.source.read(0, self.rows)).reshape(-1)

    # As an array.

    def __array__(
        self,
        dtype: npt.DTypeLike | None = None,
        copy: bool | None = None,  # noqa: FBT001 (NumPy's protocol)
    ) -> Elements:
        return self.numpy(dtype, copy=copy)

    def __dlpack__(self, *, copy: bool | None = None, **options: Any) -> Any:  # noqa: ANN401 (a capsule)
        """Return the elements for other array libraries, which may write to them: a copy."""
        if copy is False:
            raise BufferError(f"{self!r} is read-only in its file: from_dlpack must make a copy")
        return self.numpy(copy=True).__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the device of the elements: the processor."""
        return (1, 0)

    def chunks(self, elements: int = CHUNK_ELEMENTS) -> Iterator[Tensor]:
        """Yield tensors of consecutive rows of the first axis, of about `elements` elements each.

        So a large tensor is read in parts. Raises ShapeError for a scalar and an opaque type.
        """
        step = max(1, elements * len(self) // max(self.size, 1))
        if len(self.shape) == 1:  # within the row, between blocks
            step = max(1, step // max(self.type.block_size, 1)) * max(self.type.block_size, 1)
        return (self[start : start + step] for start in range(0, len(self), step))

    def __len__(self) -> int:
        """Return the length of the first axis; TensorTypeError (a TypeError) for a scalar."""
        if not self.shape:
            raise TensorTypeError(f"tensor {self.name!r} is a scalar and has no length")
        return self.shape[0]

    def __bool__(self) -> bool:
        """Return true: a tensor of no rows is also a tensor."""
        return True

    def __iter__(self) -> NoReturn:
        """Raise TensorTypeError: a loop would read and decode row by row."""
        raise TensorTypeError(
            f"tensor {self.name!r} cannot be iterated over",
            remedy="Use numpy(), or chunks() for a large one in parts",
        )

    def __repr__(self) -> str:
        return f"<Tensor {self.name!r}: {self.type} {self.shape}>"

    def _repr_html_(self) -> str:
        return definitions(
            self.name,
            {"type": self.type, "shape": self.shape, "bytes": f"{self.nbytes:,}"},
        )

    def __getitem__(self, index: Index) -> Tensor:
        """Return the tensor of one row of the first axis, of a slice, or of rows by their numbers.

        Numbers are a list or an array of integers; an array of bools chooses rows.
        """
        if self.type.is_opaque or not self.shape:
            raise ShapeError(f"tensor {self.name!r} of type {self.type} has no rows to slice")
        if isinstance(index, slice):
            start, stop, step = index.indices(self.shape[0])
            if step == 1:
                return self._between(start, max(start, stop))
            return self._picked(np.arange(start, stop, step))
        if isinstance(index, list | np.ndarray) and np.ndim(index) == 1:
            return self._picked(self._checked(np.asarray(index)))
        try:
            number = operator.index(index)  # type: ignore[arg-type]
        except TypeError:
            raise ShapeError(
                f"tensor {self.name!r} has no rows {brief(index)}",
                remedy="Use an integer, a slice or a list of integers; NumPy on numpy() for more",
            ) from None
        (row,) = self._checked(np.asarray([number])).tolist()
        single = self._between(row, row + 1)
        return Tensor(self.name, self.type, self.shape[1:], single.nbytes, single.source)

    def _between(self, start: int, stop: int) -> Tensor:
        if (start, stop) == (0, self.shape[0]):
            return self
        source: Source
        inner = self.rows // self.shape[0] if self.shape[0] else 0
        is_inside = self.type.row_prefix > 0 and len(self.shape) == 1
        if is_inside or any(n * inner % self.type.interleaved for n in (start, stop)):
            raise ShapeError(
                f"tensor {self.name!r} of {self.type} cannot be cut from {start} to {stop}: its "
                "rows belong together",
                remedy="Decode it with `numpy()`, and cut the array",
            )
        if len(self.shape) == 1:
            size, per_block = self.type.block_size, self.type.block_bytes
            if start % size or stop % size:
                raise ShapeError(
                    f"tensor {self.name!r} of one row can be cut between blocks of {size} only",
                    remedy=f"Use multiples of {size}",
                )
            source = Columns(self.source, start // size * per_block, stop // size * per_block)
        else:
            source = Rows(self.source, start * inner, stop * inner, self.row_bytes)
        return Tensor.over(self.name, self.type, (stop - start, *self.shape[1:]), source)

    def _checked(self, index: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the numbers of rows: none negative, none beyond the end (IndexError)."""
        count = self.shape[0]
        if index.dtype == np.bool_ and len(index) == count:
            return np.flatnonzero(index)
        if index.dtype.kind not in "iu" and index.size:
            raise ShapeError(
                f"tensor {self.name!r} has no rows {brief(index)}",
                remedy=f"Use whole numbers, or {count} bools",
            )
        numbers = index.astype(np.int64)
        outside = (numbers < -count) | (numbers >= count)
        if outside.any():
            message = f"tensor {self.name!r} has {count} rows, no row {numbers[outside][0]}"
            raise IndexError(message)
        return np.where(numbers < 0, numbers + count, numbers)

    def _picked(self, index: npt.NDArray[np.int64]) -> Tensor:
        shape = (len(index), *self.shape[1:])
        if self.type.interleaved > 1:
            raise ShapeError(
                f"tensor {self.name!r} of {self.type} has interleaved rows, which cannot be chosen",
                remedy="Choose rows of the array that `numpy()` gives",
            )
        if len(self.shape) > 1:
            inner = math.prod(self.shape[1:-1])
            rows = (index[:, np.newaxis] * inner + np.arange(inner)).reshape(-1)
            return Tensor.over(
                self.name, self.type, shape, PickedRows(self.source, rows, self.row_bytes)
            )
        if self.type.block_size > 1:
            raise ShapeError(
                f"tensor {self.name!r} of one row cannot be cut inside its blocks",
                remedy="Use NumPy on the result of numpy()",
            )
        columns = PickedColumns(self.source, index, self.type.block_bytes)
        return Tensor.over(self.name, self.type, shape, columns)


def require_decodable(tensor: Tensor) -> None:
    """Raise TensorTypeError for a tensor of a type without a decoder."""
    kind = tensor.type
    if kind.is_opaque or (kind.id < 0 and not kind.dtype):
        raise TensorTypeError(
            f"tensor {tensor.name!r} is of type {kind}, which cannot be decoded",
            remedy="`raw()` gives its bytes",
        )
