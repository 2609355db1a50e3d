"""Where the bytes of a header's fields are, and the arrays that gguf-py would make of them."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from gguf.constants import GGUFValueType
from gguf.gguf_reader import GGUFReader as InstalledReader

import ggufkit._native as _native

Part: TypeAlias = "npt.NDArray[Any]"
Lists: TypeAlias = "tuple[list[Part], list[int]]"  # arrays, and which of them are the data

_WIDE: Final = True  # lengths have 8 bytes since version 2, and gguf-py reads no older one
_STRING: Final = GGUFValueType.STRING
_ARRAY: Final = GGUFValueType.ARRAY
_ARRAY_HEAD: Final = 12  # bytes: element type and count


class FileBytes(InstalledReader):
    """The bytes of a mapped file: gguf-py's own methods, and faster ones for arrays."""

    def __init__(self, data: Part, byte_order: Literal["I", "S"]) -> None:
        """Take the bytes without reading them."""
        self.data = data  # type: ignore[assignment]  # gguf-py has it mapped
        self.byte_order: Literal["I", "S"] = byte_order
        self.is_big: bool = (byte_order == "S") == np.little_endian

    def numbers(self, offset: int, dtype: npt.DTypeLike, count: int = 1) -> Part:
        """Return a view of `count` numbers."""
        return self._get(offset, dtype, count)

    def text(self, offset: int, size: int) -> str:
        """Return `size` bytes as a str."""
        return str(self.data[offset : offset + size].data, encoding="utf-8")

    def texts(self, offset: int, count: int) -> list[str] | None:
        """Return an array's strings, None if one is not UTF-8."""
        if _native.utf8_problem(self.data.data, offset, count, _WIDE, self.is_big) >= 0:
            return None
        return _native.strings(self.data.data, offset, count, _WIDE, self.is_big)

    def value_lists(self, offset: int, kind: int) -> Lists:
        """Return the arrays of a value, made one by one."""
        _, parts, data, _ = self._get_field_parts(offset, kind)
        return parts, data

    def value_types(self, offset: int, kind: int) -> list[GGUFValueType]:
        """Return the type of a value, and the types of its elements."""
        return self._get_field_parts(offset, kind)[3]

    def key_head(self, offset: int, size: int) -> list[Part]:
        """Return length and bytes of a key, and the type of its value."""
        return [*self._get_str(offset), self._get(offset + 8 + size, np.uint32)]

    def info_parts(self, offset: int) -> list[Part]:
        """Return the arrays of the description of a tensor."""
        return self._get_tensor_info_field(offset).parts

    def array_lists(self, offset: int, kind: GGUFValueType, count: int) -> Lists:
        """Return the arrays of the elements of an array that is not nested.

        A number is an array of one element, as in gguf-py.
        """
        if kind != _STRING:
            ones = self._get(offset, self.gguf_scalar_to_np[kind], count).reshape(count, 1)
            return list(ones), list(range(count))
        packed = _native.string_index(self.data.data, offset, count, _WIDE, self.is_big)
        length = np.dtype("u8").newbyteorder(self.byte_order)
        parts: list[Part] = []
        for start, stop in itertools.pairwise(np.frombuffer(packed, "u8").tolist()):
            parts += (self.data[start : start + 8].view(length), self.data[start + 8 : stop])
        return parts, list(range(1, 2 * count, 2))


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

    @property
    def _is_flat(self) -> bool:
        return self.type_id == _ARRAY and self.element_id != _ARRAY

    @functools.cached_property
    def types(self) -> list[GGUFValueType]:
        """The type of the value; of an array with elements also theirs."""
        kind = GGUFValueType(self.type_id)
        if kind != _ARRAY or not self.count:
            return [kind]
        if self._is_flat:
            return [kind, GGUFValueType(self.element_id)]
        return self.file.value_types(self.value_at - _ARRAY_HEAD, kind)

    @functools.cached_property
    def lists(self) -> Lists:
        """Length of the key, key, type, and the parts of the value."""
        file, start = self.file, self.value_at
        head = file.key_head(self.offset, self.key_bytes)
        if self.type_id == _ARRAY:
            start -= _ARRAY_HEAD
        if self._is_flat:
            head += [file.numbers(start, np.uint32), file.numbers(start + 4, np.uint64)]
            kind = GGUFValueType(self.element_id)
            parts, data = file.array_lists(self.value_at, kind, self.count)
        else:
            parts, data = file.value_lists(start, self.type_id)
        return head + parts, [len(head) + index for index in data]

    def elements(self) -> list[Any] | None:
        """Return the elements of an array that is not nested, decoded in one step."""
        if not self._is_flat:
            return None
        if self.element_id == _STRING:
            return self.file.texts(self.value_at, self.count)
        dtype = self.file.gguf_scalar_to_np[GGUFValueType(self.element_id)]
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

    types: ClassVar[list[GGUFValueType]] = []  # descriptions have no value type

    @property
    def offset(self) -> int:
        """The first byte: the name's length."""
        return self.name_at - 8

    @property
    def name(self) -> str:
        """The tensor's name."""
        return self.file.text(self.name_at, self.name_bytes)

    @functools.cached_property
    def dims(self) -> Part:
        """The dimensions in ggml's order."""
        return self.file.numbers(self.dims_at, np.uint64, self.n_dims)

    @functools.cached_property
    def lists(self) -> Lists:
        """Length of the name, name, number of dimensions, dimensions, type and offset."""
        parts = self.file.info_parts(self.offset)
        parts[3] = self.dims
        return parts, [1, 3, 4, 5]

    def elements(self) -> None:
        """Descriptions have no value."""
