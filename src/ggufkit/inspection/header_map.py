"""List the fields of a header: their positions, bytes and meaning.

It works on damaged files too, as far as their header can be read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

import ggufkit._native as _native
from ggufkit.format.encoding import Encoding
from ggufkit.format.header import KEY_RECORD, TENSOR_RECORD, Header
from ggufkit.format.types import VALUE_TYPES, ValueType, tensor_type
from ggufkit.format.values import Arrays, decode_array, decode_scalar
from ggufkit.models.open import part_of
from ggufkit.models.rows import AnyFile
from ggufkit.rules.findings import Finding

SHOWN_BYTES: Final = 64  # of a field: any tensor name in full; arrays and templates are cut
SHOWN_ITEMS: Final = 4  # of an array


@dataclass(frozen=True)
class Field:
    """A field of the header: `nbytes` at `offset`; `data` holds the first of these bytes."""

    offset: int
    nbytes: int
    data: bytes
    meaning: str


def dissect(path: str | os.PathLike[str]) -> tuple[list[Field], tuple[Finding, ...]]:
    """Return the header's fields in order, and what was found wrong with the file.

    If an error ends the header early, the last field is the place of the error. Raises OSError if
    the file cannot be read.
    """
    part = part_of(path)
    file, header = part.file, part.header
    try:
        with file.unchanged():
            fields = list(_Map(file, header).fields()) if file.nbytes else []
    finally:
        file.close()
    return fields, tuple(finding.at(file.path) for finding in header.findings)


class _Map:
    """The walk over one file's header, along the tables of the native scan."""

    def __init__(self, file: AnyFile, header: Header) -> None:
        self.data = file.data
        self.nbytes = file.nbytes
        self.header = header
        self.encoding = Encoding(header.byte_order, wide=header.version != 1)

    def fields(self) -> Iterator[Field]:
        """Yield every field that the scan reached."""
        offset = 0
        errors = (f for f in self.header.findings if f.severity == "error")
        error = next((f for f in errors if f.offset == self.header.end), None)
        for field in self._entries():
            if error and field.offset >= error.offset:
                break
            offset = field.offset + field.nbytes
            yield field
        if error is None:
            begin, end = self.header.end, self.header.data_offset
            if end > begin:
                meaning = f"padding to a multiple of {self.header.alignment}"
                yield self._field(begin, end - begin, meaning)
            if end and self.nbytes > end:
                yield self._field(end, self.nbytes - end, "tensor data")
        else:
            yield from self._stopped(offset, error)

    def _entries(self) -> Iterator[Field]:
        if not self.header.version:
            return
        size = self.encoding.count_bytes
        yield self._field(0, 4, "magic")
        order = self.header.byte_order
        yield self._field(4, 4, f"version {self.header.version}, {order} endian")
        if self.nbytes >= 8 + 2 * size:
            yield self._field(8, size, f"tensor count {self._number(8, size)}")
            yield self._field(8 + size, size, f"key-value count {self._number(8 + size, size)}")
        _, _, _, _, _, keys, tensors, _ = _native.scan(self.data)
        for record in np.frombuffer(keys, KEY_RECORD).tolist():
            yield from self._pair(*record)
        for record in np.frombuffer(tensors, TENSOR_RECORD).tolist():
            yield from self._tensor(*record)

    def _field(self, offset: int, nbytes: int, meaning: str) -> Field:
        raw = bytes(memoryview(self.data)[offset : offset + min(nbytes, SHOWN_BYTES)])
        return Field(offset, nbytes, raw, meaning)

    def _number(self, offset: int, nbytes: int) -> int:
        raw = memoryview(self.data)[offset : offset + nbytes]
        return int.from_bytes(raw, self.encoding.byte_order)

    def _pair(  # noqa: PLR0913 (a record of the scan)
        self, key_at: int, size: int, kind: int, element: int, count: int, value_at: int, end: int
    ) -> Iterator[Field]:
        wide = self.encoding.count_bytes
        type_at = key_at + size
        yield self._field(key_at - wide, wide, f"key length {size}")
        yield self._field(key_at, size, f"key {self._text(key_at, size)}")
        yield self._field(type_at, 4, f"value type {kind}: {VALUE_TYPES[kind].name.lower()}")
        if VALUE_TYPES[kind] is not ValueType.ARRAY:
            yield from self._scalar(VALUE_TYPES[kind], value_at, end)
            return
        inner = VALUE_TYPES[element]
        yield self._field(type_at + 4, 4, f"element type {element}: {inner.name.lower()}")
        yield self._field(type_at + 8, wide, f"element count {count}")
        if end > value_at:
            body = self._elements(inner, count, value_at, end)
            yield self._field(value_at, end - value_at, body)

    def _scalar(self, kind: ValueType, offset: int, end: int) -> Iterator[Field]:
        if kind is ValueType.STRING:
            wide = self.encoding.count_bytes
            size = end - offset - wide
            yield self._field(offset, wide, f"string length {size}")
            if size:
                yield self._field(offset + wide, size, repr(self._text(offset + wide, size)))
            return
        value = decode_scalar(self.data, kind, offset, end, self.encoding)
        yield self._field(offset, end - offset, f"value {value}")

    def _text(self, offset: int, size: int) -> str:
        raw = bytes(memoryview(self.data)[offset : offset + min(size, SHOWN_BYTES)])
        text = raw.decode("utf-8", "replace" if size > SHOWN_BYTES else "surrogateescape")
        return text + ("..." if size > SHOWN_BYTES else "")

    def _elements(self, kind: ValueType, count: int, offset: int, end: int) -> str:
        array = decode_array(self.data, kind, count, offset, end, self.encoding)
        if isinstance(array, Arrays):
            return "arrays"
        items: list[object] = list(array[:SHOWN_ITEMS])
        listed = ", ".join(repr(i[:SHOWN_BYTES]) if isinstance(i, str) else str(i) for i in items)
        return listed + (", ..." if count > SHOWN_ITEMS else "")

    def _tensor(  # noqa: PLR0913 (a record of the scan)
        self,
        name_at: int,
        size: int,
        dims_at: int,
        _width: int,
        _elements: int,
        start: int,
        n_dims: int,
        kind: int,
    ) -> Iterator[Field]:
        wide = self.encoding.count_bytes
        yield self._field(name_at - wide, wide, f"name length {size}")
        yield self._field(name_at, size, f"tensor {self._text(name_at, size)}")
        yield self._field(name_at + size, 4, f"dimension count {n_dims}")
        places = range(dims_at, dims_at + n_dims * wide, wide)
        dims = " x ".join(str(self._number(offset, wide)) for offset in places)
        if n_dims:
            yield self._field(dims_at, n_dims * wide, f"dimensions {dims}, fastest-varying first")
        type_at = dims_at + n_dims * wide
        yield self._field(type_at, 4, f"tensor type {kind}: {tensor_type(kind)}")
        yield self._field(type_at + 4, 8, f"offset {start}, from the beginning of the data")

    def _stopped(self, offset: int, error: Finding) -> Iterator[Field]:
        """Yield the bytes between the last whole entry and the error, and the error's place."""
        if error.offset > offset:
            meaning = "the start of an entry that cannot be read"
            yield self._field(offset, error.offset - offset, meaning)
        nbytes = min(self.nbytes - error.offset, SHOWN_BYTES)
        yield self._field(error.offset, nbytes, f"ERROR: {error.message}")
