"""Where the bytes of a header's fields are, and the arrays that gguf-py would make of them."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt

import ggufkit._native as _native
from ggufkit.compat.gguf.installed import GGUFValueType
from ggufkit.format.types import VALUE_TYPES

Part: TypeAlias = "npt.NDArray[Any]"

_WIDE: Final = True  # lengths have 8 bytes since version 2, and gguf-py reads no older one
_STRING: Final = GGUFValueType.STRING
_ARRAY: Final = GGUFValueType.ARRAY
_ARRAY_HEAD: Final = 12  # bytes: element type and count


class Lists(NamedTuple):
    """The arrays of a field in file order, which of them are its data, and where they end."""

    parts: list[Part]
    data: list[int]
    end: int = 0

    def after(self, head: list[Part]) -> Lists:
        """Return these lists with `head` before them."""
        first = len(head)
        return Lists(head + self.parts, [first + index for index in self.data], self.end)


class FileBytes:
    """The bytes of a mapped file, and whether its byte order is not the host's."""

    def __init__(self, data: Part, *, swapped: bool) -> None:
        """Prepare the types of the numbers that a header consists of."""
        self.data = data
        self.is_big: bool = swapped == np.little_endian
        self.u4: np.dtype[Any] = self.ordered("u4")
        self.u8: np.dtype[Any] = self.ordered("u8")
        self.scalars: dict[GGUFValueType, np.dtype[Any]] = {
            GGUFValueType[row.name]: self.ordered(row.dtype)
            for row in VALUE_TYPES.values()
            if row.dtype
        }

    def ordered(self, dtype: npt.DTypeLike) -> np.dtype[Any]:
        """Return the type in the file's byte order."""
        ordered: np.dtype[Any] = np.dtype(dtype).newbyteorder(">" if self.is_big else "<")
        return ordered

    def numbers(self, offset: int, dtype: np.dtype[Any], count: int = 1) -> Part:
        """Return a view of `count` numbers."""
        return self.data[offset : offset + dtype.itemsize * count].view(dtype)

    def string(self, offset: int, size: int) -> list[Part]:
        """Return length and bytes of a string of `size` bytes."""
        return [self.numbers(offset, self.u8), self.data[offset + 8 : offset + 8 + size]]

    def text(self, offset: int, size: int) -> str:
        """Return `size` bytes as a str."""
        return str(self.data[offset : offset + size].data, encoding="utf-8")

    def texts(self, offset: int, count: int) -> list[str] | None:
        """Return an array's strings, None if one is not UTF-8."""
        if _native.utf8_problem(self.data.data, offset, count, _WIDE, self.is_big) >= 0:
            return None
        return _native.strings(self.data.data, offset, count, _WIDE, self.is_big)

    def array_head(self, offset: int) -> list[Part]:
        """Return element type and count of an array."""
        return [self.numbers(offset, self.u4), self.numbers(offset + 4, self.u8)]

    def array_lists(self, offset: int, kind: GGUFValueType, count: int) -> Lists:
        """Return the arrays of the elements of an array, inner arrays one after the other.

        A number is an array of one element, as in gguf-py.
        """
        if kind == _STRING:
            return self._string_lists(offset, count)
        if kind != _ARRAY:
            dtype = self.scalars[kind]
            ones = self.numbers(offset, dtype, count).reshape(count, 1)
            return Lists(list(ones), list(range(count)), offset + dtype.itemsize * count)
        parts: list[Part] = []
        data: list[int] = []
        for _ in range(count):
            head = self.array_head(offset)
            element, inner = GGUFValueType(int(head[0][0])), int(head[1][0])
            inner_lists = self.array_lists(offset + _ARRAY_HEAD, element, inner).after(parts + head)
            parts, offset = inner_lists.parts, inner_lists.end
            data += inner_lists.data
        return Lists(parts, data, offset)

    def _string_lists(self, offset: int, count: int) -> Lists:
        packed = _native.string_index(self.data.data, offset, count, _WIDE, self.is_big)
        places = np.frombuffer(packed, "u8").tolist()
        parts: list[Part] = []
        for start, stop in itertools.pairwise(places):
            parts += (self.data[start : start + 8].view(self.u8), self.data[start + 8 : stop])
        return Lists(parts, list(range(1, 2 * count, 2)), places[-1])

    def element_types(self, offset: int, kind: GGUFValueType) -> list[GGUFValueType]:
        """Return the types of an array's first element, which may be an array itself."""
        if kind != _ARRAY:
            return [kind]
        inner, count = (int(part[0]) for part in self.array_head(offset))
        rest = self.element_types(offset + _ARRAY_HEAD, GGUFValueType(inner)) if count else []
        return [kind, *rest]


@dataclass
class KeyBytes:
    """A key with its value: one record of the scanner."""

    file: FileBytes
    key_at: int
    key_bytes: int
    type_id: int
    element_id: int
    count: int
    value_at: int
    end: int

    @property
    def offset(self) -> int:
        """The first byte: the key's length."""
        return self.key_at - 8

    @property
    def name(self) -> str:
        """The key."""
        return self.file.text(self.key_at, self.key_bytes)

    @functools.cached_property
    def types(self) -> list[GGUFValueType]:
        """The type of the value; of an array with elements also theirs."""
        kind = GGUFValueType(self.type_id)
        if kind != _ARRAY or not self.count:
            return [kind]
        return [kind, *self.file.element_types(self.value_at, GGUFValueType(self.element_id))]

    @functools.cached_property
    def lists(self) -> Lists:
        """Length of the key, key, type, and the parts of the value."""
        file, offset, kind = self.file, self.value_at, GGUFValueType(self.type_id)
        head = [
            *file.string(self.offset, self.key_bytes),
            file.numbers(self.key_at + self.key_bytes, file.u4),
        ]
        if kind == _STRING:
            return Lists(file.string(offset, self.end - offset - 8), [1]).after(head)
        if kind != _ARRAY:
            return Lists([file.numbers(offset, file.scalars[kind])], [0]).after(head)
        elements = file.array_lists(offset, GGUFValueType(self.element_id), self.count)
        return elements.after(head + file.array_head(offset - _ARRAY_HEAD))

    def elements(self) -> list[Any] | None:
        """Return the elements of an array that is not nested, decoded in one step."""
        if self.type_id != _ARRAY or self.element_id == _ARRAY:
            return None
        if self.element_id == _STRING:
            return self.file.texts(self.value_at, self.count)
        dtype = self.file.scalars[GGUFValueType(self.element_id)]
        return cast("list[Any]", self.file.numbers(self.value_at, dtype, self.count).tolist())


@dataclass
class InfoBytes:
    """The description of a tensor: one record of the scanner."""

    file: FileBytes
    name_at: int
    name_bytes: int
    dims_at: int
    width: int
    count: int
    start: int
    n_dims: int
    type_id: int

    @property
    def offset(self) -> int:
        """The first byte: the name's length."""
        return self.name_at - 8

    @property
    def name(self) -> str:
        """The tensor's name."""
        return self.file.text(self.name_at, self.name_bytes)

    @property
    def types(self) -> list[GGUFValueType]:
        """Descriptions have no value type."""
        return []

    @functools.cached_property
    def dims(self) -> Part:
        """The dimensions in ggml's order."""
        return self.file.numbers(self.dims_at, self.file.u8, self.n_dims)

    @functools.cached_property
    def lists(self) -> Lists:
        """Length of the name, name, number of dimensions, dimensions, type and offset."""
        file, after = self.file, self.dims_at + 8 * self.n_dims
        parts = [
            *file.string(self.offset, self.name_bytes),
            file.numbers(self.dims_at - 4, file.u4),
            self.dims,
        ]
        parts += [file.numbers(after, file.u4), file.numbers(after + 4, file.u8)]
        return Lists(parts, [1, 3, 4, 5])

    def elements(self) -> None:
        """Descriptions have no value."""
