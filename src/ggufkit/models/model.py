"""The lazy model: metadata and ordered tensors; tensor data is read when asked for."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ggufkit.errors import MissingTensorError, ShapeError, TensorTypeError
from ggufkit.format.byte_order import to_byte_order
from ggufkit.format.encoding import ByteOrder
from ggufkit.format.metadata import Metadata, alignment_of
from ggufkit.format.types import TensorType
from ggufkit.models.rows import Columns, OpenedFile, Rows, Source, Unplaced, rows_and_width
from ggufkit.quants import codec
from ggufkit.rules.findings import Finding
from ggufkit.system.mapped_file import Bytes


@dataclass(frozen=True, slots=True)
class Tensor:
    """A named tensor: `shape` in NumPy order (the last axis is packed), `type`, and a source.

    Nothing is read before `raw` or `numpy` is called; `tensor[a:b]` is the tensor of those rows
    of the first axis, also lazy. An opaque type has no known layout: only `raw` works.
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

    def numpy(self) -> np.ndarray[Any, np.dtype[Any]]:
        """Return the elements in `shape`: plain types in their dtype, all others as float32.

        A plain tensor in native byte order is a view of the file. Raises TensorTypeError for an
        opaque type.
        """
        if self.type.is_opaque:
            raise TensorTypeError(
                f"tensor {self.name!r} is of type {self.type}, which cannot be decoded",
                remedy="`raw()` gives its bytes",
            )
        if self.type.dtype is None:
            rows = self.source.read(0, self.rows)
            native = to_byte_order(rows, self.type, self.source.byte_order, "little")
            return codec.dequantize(native, self.type).reshape(self.shape)
        data = self._bytes()
        mark = "<" if self.source.byte_order == "little" else ">"
        array = data.view(mark + self.type.dtype).reshape(self.shape)
        return array.astype(self.type.dtype, copy=False)

    def _bytes(self) -> Bytes:
        """Return all bytes, flat: a view if they are in a file, else computed."""
        span = self.source.span
        if span:
            return span.file.view(span.offset, span.nbytes)
        return np.ascontiguousarray(self.source.read(0, self.rows)).reshape(-1)

    def __getitem__(self, index: slice) -> Tensor:
        """Return the tensor of rows `index` of the first axis (a slice of step 1)."""
        start, stop = self._bounds(index)
        inner = self.rows // self.shape[0] if self.shape[0] else 0
        kept = (stop - start, *self.shape[1:])
        if len(self.shape) == 1:
            return self._part_of_row(start, stop)
        source = Rows(self.source, start * inner, stop * inner, self.row_bytes)
        return Tensor.over(self.name, self.type, kept, source)

    def _bounds(self, index: slice) -> tuple[int, int]:
        if not isinstance(index, slice) or index.step not in (None, 1):
            raise ShapeError(
                f"tensor {self.name!r} takes slices of step 1, not {index!r}",
                remedy="Use tensor[start:stop], and NumPy on the result of numpy()",
            )
        if self.type.is_opaque or not self.shape:
            raise ShapeError(f"tensor {self.name!r} of type {self.type} has no rows to slice")
        start, stop, _ = index.indices(self.shape[0])
        return start, max(start, stop)

    def _part_of_row(self, start: int, stop: int) -> Tensor:
        size = self.type.block_size
        if start % size or stop % size:
            raise ShapeError(
                f"tensor {self.name!r} of one row can be cut between blocks of {size} only",
                remedy=f"Use multiples of {size}",
            )
        per_block = self.type.block_bytes
        source = Columns(self.source, start // size * per_block, stop // size * per_block)
        return Tensor.over(self.name, self.type, (stop - start,), source)


class Tensors(Mapping[str, Tensor]):
    """The tensors of a model by name, in file order.

    Tensors of an opened file are created on access.
    """

    __slots__ = ("_by_name", "_make")
    _make: Callable[[int], Tensor]  # from the numbers that `lying` stores instead of tensors

    def __init__(self, tensors: Iterable[Tensor] = ()) -> None:
        """Take tensors in order; a repeated name raises ShapeError."""
        self._by_name: dict[str, Tensor | int] = {}
        for tensor in tensors:
            if tensor.name in self._by_name:
                raise ShapeError(f"two tensors have the name {tensor.name!r}")
            self._by_name[tensor.name] = tensor

    @classmethod
    def lying(cls, names: Iterable[str], make: Callable[[int], Tensor]) -> Tensors:
        """Return tensors with distinct `names`; `make` creates one from its number."""
        tensors = cls()
        tensors._by_name = {name: number for number, name in enumerate(names)}
        tensors._make = make
        return tensors

    def __getitem__(self, name: str) -> Tensor:
        """Return a tensor; an unknown name raises MissingTensorError with the nearest one."""
        try:
            found = self._by_name[name]
        except KeyError:
            near = difflib.get_close_matches(str(name), self._by_name, 1)
            remedy = f"Did you mean {near[0]!r}?" if near else ""
            raise MissingTensorError(f"the model has no tensor {name!r}", remedy=remedy) from None
        if isinstance(found, Tensor):
            return found
        made = self._by_name[name] = self._make(found)
        return made

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._by_name)

    def __len__(self) -> int:
        """Return the number of tensors."""
        return len(self._by_name)

    def __contains__(self, name: object) -> bool:
        """Whether a tensor has this name."""
        return name in self._by_name

    def __repr__(self) -> str:
        """Show the number of tensors."""
        return f"<{len(self)} tensors>"


@dataclass(frozen=True)
class ModelFile:
    """The layout of one file of a model: sizes and offsets in bytes."""

    path: Path
    nbytes: int
    data_offset: int
    data_nbytes: int


class Model:
    """A model: metadata, tensors, and its layout in files.

    Models are values: `replace` returns a changed one, and no operation reads tensor data. `files`
    is empty for a model that was not opened from files. A model can be used as a context manager;
    after `close` its data can no longer be read.
    """

    def __init__(  # noqa: PLR0913 (what a file says of itself)
        self,
        metadata: Metadata,
        tensors: Tensors,
        *,
        version: int = 3,
        byte_order: ByteOrder = "little",
        files: tuple[ModelFile, ...] = (),
        end_padded: bool = True,
    ) -> None:
        """Store the parts unchecked; `open` and `save` make models."""
        self.metadata = metadata
        self.tensors = tensors
        self.version = version
        self.byte_order: ByteOrder = byte_order
        self.files = files
        self.end_padded = end_padded  # ggml pads the end of a file; some writers do not
        self.inputs: tuple[OpenedFile, ...] = ()
        self.missing: tuple[Finding, ...] = ()  # what `open(partial=True)` did not find

    @property
    def alignment(self) -> int:
        """Tensor alignment in bytes: general.alignment, 32 if absent."""
        return alignment_of(self.metadata)

    @property
    def data_offset(self) -> int:
        """Where tensor data begins in the (first) file, 0 for a model without files."""
        return self.files[0].data_offset if self.files else 0

    @property
    def data_nbytes(self) -> int:
        """Bytes from the beginning of tensor data to the end, all files together."""
        return sum(file.data_nbytes for file in self.files)

    def replace(
        self, *, metadata: Metadata | None = None, tensors: Iterable[Tensor] | None = None
    ) -> Model:
        """Return the same model with other metadata or tensors, without files."""
        changed = Model(
            self.metadata if metadata is None else metadata,
            self.tensors if tensors is None else Tensors(tensors),
            version=self.version,
            byte_order=self.byte_order,
        )
        changed.inputs = self.inputs
        return changed

    def close(self) -> None:
        """Close the files; arrays already handed out stay valid."""
        for file in self.inputs:
            file.close()

    def reading(self, files: Iterable[OpenedFile]) -> Model:
        """Attach the open files: `close` closes them, and none of them may be an output."""
        self.inputs = tuple(files)
        return self

    def __enter__(self) -> Model:
        """Return the model."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the files."""
        self.close()

    def __repr__(self) -> str:
        """Show architecture, counts and files."""
        name = ", ".join(file.path.name for file in self.files[:1]) or "in memory"
        return f"<Model {name}: {len(self.metadata)} keys, {len(self.tensors)} tensors>"


def bits_per_weight(tensors: Iterable[Tensor]) -> float | None:
    """Return the average number of bits per element, None if there are no elements."""
    held = list(tensors)
    elements = sum(tensor.elements for tensor in held)
    return 8 * sum(tensor.nbytes for tensor in held) / elements if elements else None


def as_ggml_counts(tensor: Tensor) -> Tensor:
    """Return a tensor without leading axes of length 1, which ggml does not write."""
    if tensor.shape and tensor.shape[0] != 1:
        return tensor
    first = next((i for i, n in enumerate(tensor.shape[:-1]) if n != 1), len(tensor.shape) - 1)
    shape = tensor.shape[max(first, 0) :] or (1,)
    return tensor if shape == tensor.shape else replace(tensor, shape=shape)
