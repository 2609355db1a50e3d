"""Metadata values: each GGUF value type in Python, decoded from bytes and encoded to bytes.

A typed value knows its GGUF type, so writing it again gives the bytes it was read from. Scalars are
NumPy scalars (`np.uint32(7)`), `bool` and `str`; arrays of numbers and bools are one-dimensional
NumPy arrays; arrays of strings are `Strings`, arrays of arrays `Arrays`. `python_value` makes of it
what users get: numbers are Python's, which do not wrap around and which `json` accepts.
"""

from __future__ import annotations

import itertools
import operator
import struct
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Final, TypeAlias, TypeVar, overload

import numpy as np

import ggufkit._native as _native
from ggufkit.errors import ValueTypeError, brief
from ggufkit.format.encoding import CANONICAL, Encoding, encode_string
from ggufkit.format.types import VALUE_TYPES, ValueType
from ggufkit.system.mapped_file import Data, view

AnyPacked = TypeVar("AnyPacked", bound="_Packed")
Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]] | Strings | Arrays"
# np.generic: a NumPy number, whose dtype says the GGUF type.
TypedValue: TypeAlias = "bool | str | np.generic | Array"
Value: TypeAlias = "bool | int | float | str | Array"
_LENGTH: Final = struct.Struct("<Q")  # of a string in the canonical encoding
MAX_ARRAY_DEPTH: Final = 32  # as in the native scanner; no real model nests deeper
_BY_DTYPE: Final = {np.dtype(kind.dtype): kind for kind in ValueType if kind.dtype}
INNER_ARRAY: Final = np.dtype(
    [("element_type", "u4"), ("pad", "u4"), ("count", "u8"), ("value_at", "u8"), ("end", "u8")]
)


class _Packed(Sequence[Any]):
    """A run of encoded array elements inside a buffer, decoded when asked for."""

    __slots__ = ("_count", "_data", "_encoding", "_end", "_index", "_offset")

    def __init__(self, data: Data, offset: int, end: int, count: int, encoding: Encoding) -> None:
        self._data = data
        self._offset = offset
        self._end = end
        self._count = count
        self._encoding = encoding
        self._index: np.ndarray[Any, np.dtype[Any]] | None = None

    def __len__(self) -> int:
        return self._count

    @classmethod
    def over(  # noqa: PYI019 (Python 3.10 has no Self)
        cls: type[AnyPacked], data: Data, offset: int, end: int, count: int, encoding: Encoding
    ) -> AnyPacked:
        """Make the sequence encoded in `data[offset:end]`."""
        packed = cls.__new__(cls)
        _Packed.__init__(packed, data, offset, end, count, encoding)
        return packed

    def __eq__(self, other: object) -> bool:
        """Whether `other` holds the same elements, types included."""
        if not isinstance(other, type(self)):
            return NotImplemented
        return len(self) == len(other) and self.encoded(CANONICAL) == other.encoded(CANONICAL)

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        listed = ", ".join(repr(item) for item in self[:3])
        more = ", ..." if len(self) > 3 else ""  # noqa: PLR2004
        return f"{type(self).__name__}([{listed}{more}], length={len(self)})"

    def encoded(self, encoding: Encoding) -> bytes:
        """Return the elements' bytes in `encoding`; untouched ones are copied as they are."""
        if encoding == self._encoding:
            with view(self._data) as raw:
                return bytes(raw[self._offset : self._end])
        return self._recoded(encoding)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        data = self.encoded(CANONICAL)
        return type(self).over, (data, 0, len(data), self._count, CANONICAL)

    @property
    def _big(self) -> bool:
        return self._encoding.byte_order == "big"

    @abstractmethod
    def _recoded(self, encoding: Encoding) -> bytes:
        """Return the elements' bytes, decoded and encoded again."""

    def _position(self, index: int) -> int:
        number = operator.index(index)
        position = number + self._count if number < 0 else number
        if not 0 <= position < self._count:
            message = f"index {index} is out of range for {self._count} elements"
            raise IndexError(message)
        return position


class Strings(_Packed):
    """An array of strings: a sequence of `str`, decoded item by item.

    Bytes that are not UTF-8 become lone surrogates (Python's `surrogateescape`) and are written
    back as they were; `raw(i)` gives the bytes themselves. `tolist()` decodes all at once, fast.
    """

    __slots__ = ()

    def __init__(self, items: Iterable[str] = ()) -> None:
        """Encode `items` once; a surrogate that is not an escaped byte raises ValueTypeError."""
        items = list(items)
        try:  # without a call for each: vocabularies have 500,000 strings
            texts = [str.encode(item, "utf-8", "surrogateescape") for item in items]
        except (TypeError, UnicodeEncodeError):
            for item in items:
                encode_string(item, CANONICAL)  # raises what says more
            raise
        pairs = zip(map(_LENGTH.pack, map(len, texts)), texts, strict=True)
        data = b"".join(itertools.chain.from_iterable(pairs))
        super().__init__(data, 0, len(data), len(texts), CANONICAL)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        """Decode one item, or the list of a slice."""
        if isinstance(index, slice):
            start, stop, step = index.indices(self._count)
            if step == 1:
                return self._decode(start, max(start, stop))
            return [self[position] for position in range(start, stop, step)]
        return self.raw(index).decode("utf-8", "surrogateescape")

    def __iter__(self) -> Iterator[str]:
        """Decode all items in one native pass."""
        return iter(self.tolist())

    def __contains__(self, item: object) -> bool:
        return item in self.tolist()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, list | tuple):
            return len(self) == len(other) and self.tolist() == list(other)
        return super().__eq__(other)

    __hash__: ClassVar[None] = None

    def raw(self, index: int) -> bytes:
        """Return the bytes of one item as in the file."""
        places = self._places()
        position = self._position(index)
        start = int(places[position]) + self._encoding.count_bytes
        with view(self._data) as raw:
            return bytes(raw[start : int(places[position + 1])])

    def longest(self) -> int:
        """Return the bytes of the longest item, 0 if there is none."""
        if self._count == 0:
            return 0
        return int(np.diff(self._places()).max()) - self._encoding.count_bytes

    def first_invalid(self) -> int | None:
        """Return the index of the first item that is not UTF-8, None if all are."""
        wide = self._encoding.wide
        with view(self._data) as raw:
            index = _native.utf8_problem(raw, self._offset, self._count, wide, self._big)
        return None if index < 0 else index

    def tolist(self) -> list[str]:
        """Decode all items into a list."""
        return self._decode(0, self._count)

    def _places(self) -> np.ndarray[Any, np.dtype[Any]]:
        """Return where each item begins, and where the last one ends."""
        if self._index is None:
            wide = self._encoding.wide
            with view(self._data) as raw:
                places = _native.string_index(raw, self._offset, self._count, wide, self._big)
            self._index = np.frombuffer(places, "u8")
        return self._index

    def _decode(self, start: int, stop: int) -> list[str]:
        if stop <= start:
            return []
        if start and self._index is None:
            self.raw(start)
        offset = self._offset if start == 0 or self._index is None else int(self._index[start])
        with view(self._data) as raw:
            return _native.strings(raw, offset, stop - start, self._encoding.wide, self._big)

    def _recoded(self, encoding: Encoding) -> bytes:
        return b"".join(encode_string(item, encoding) for item in self)


class Arrays(_Packed):
    """An array of arrays: a sequence of NumPy arrays, `Strings` or `Arrays`, decoded on demand."""

    __slots__ = ()

    def __init__(self, items: Iterable[Array] = ()) -> None:
        """Encode `items` once; each must be a NumPy array, `Strings` or `Arrays`."""
        inner = list(items)
        _check_depth(inner)
        packed = [_encode_array(item, CANONICAL) for item in inner]
        data = b"".join(packed)
        super().__init__(data, 0, len(data), len(packed), CANONICAL)

    @overload
    def __getitem__(self, index: int) -> Array: ...
    @overload
    def __getitem__(self, index: slice) -> list[Array]: ...
    def __getitem__(self, index: int | slice) -> Array | list[Array]:
        """Decode one inner array, or the list of a slice."""
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(self._count))]
        if self._index is None:
            wide = self._encoding.wide
            with view(self._data) as raw:
                records = _native.array_index(raw, self._offset, self._count, wide, self._big)
            self._index = np.frombuffer(records, INNER_ARRAY)
        kind, _, count, offset, end = self._index[self._position(index)].tolist()
        return decode_array(self._data, VALUE_TYPES[kind], count, offset, end, self._encoding)

    def tolist(self) -> list[Any]:
        """Decode all into nested lists of plain Python values."""
        return [inner.tolist() for inner in self]

    def _recoded(self, encoding: Encoding) -> bytes:
        return b"".join(_encode_array(inner, encoding) for inner in self)


def _check_depth(inner: list[Array]) -> None:
    level = inner
    for _ in range(MAX_ARRAY_DEPTH - 1):
        level = [item for array in level if isinstance(array, Arrays) for item in array]
        if not level:
            return
    raise ValueTypeError(
        f"arrays are nested deeper than {MAX_ARRAY_DEPTH} levels", remedy="Use fewer levels"
    )


def decode_scalar(
    data: Data, kind: ValueType, offset: int, end: int, encoding: Encoding
) -> TypedValue:
    """Return the scalar of type `kind` in `data[offset:end]`."""
    with view(data) as raw:
        if kind is ValueType.STRING:
            return str(raw[offset + encoding.count_bytes : end], "utf-8", "surrogateescape")
        if kind is ValueType.BOOL:
            return raw[offset] != 0
        number: np.generic = np.frombuffer(raw, f"{encoding.mark}{kind.dtype}", 1, offset)[0]
        return number


def decode_array(  # noqa: PLR0913 (a span and its type: one idea)
    data: Data, kind: ValueType, count: int, offset: int, end: int, encoding: Encoding
) -> Array:
    """Return the array of `count` elements of type `kind` in `data[offset:end]`."""
    if kind is ValueType.STRING:
        return Strings.over(data, offset, end, count, encoding)
    if kind is ValueType.ARRAY:
        return Arrays.over(data, offset, end, count, encoding)
    dtype = np.dtype(f"{encoding.mark}{kind.dtype}")
    if count == 0:
        return np.empty(0, dtype)
    with view(data) as raw:
        array = np.frombuffer(raw, dtype, count, offset)
    array.flags.writeable = False
    return array


def encode(value: TypedValue, encoding: Encoding) -> bytes:
    """Return a typed value's bytes, beginning with its type id."""
    kind = value_type(value)
    head = encoding.u32(kind.id)
    if isinstance(value, np.ndarray | Strings | Arrays):
        return head + _encode_array(value, encoding)
    if isinstance(value, str):
        return head + encode_string(value, encoding)
    if isinstance(value, bool):
        return head + bytes([value])
    return head + np.asarray(value).astype(f"{encoding.mark}{kind.dtype}").tobytes()


def _encode_array(array: Array, encoding: Encoding) -> bytes:
    head = encoding.u32(element_type(array).id) + encoding.count(len(array))
    if isinstance(array, np.ndarray):
        return head + array.astype(f"{encoding.mark}{array.dtype.str[1:]}", copy=False).tobytes()
    return head + array.encoded(encoding)


def python_value(value: TypedValue) -> Value:
    """Return a typed value with a number of Python for one of NumPy.

    A float32 becomes the shortest decimal that rounds to it: 1e-05, not 9.999999747378752e-06.
    """
    if not isinstance(value, np.generic):
        return value
    if value.dtype == np.float32 and np.isfinite(value):
        return float(np.format_float_scientific(np.float32(value)))
    number: int | float = value.item()
    return number


def whole_number(value: object) -> int | None:
    """Return an integer of a metadata value, None for a value of another kind (bool too)."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def value_type(value: object) -> ValueType:
    """Return the GGUF type of a typed value."""
    if isinstance(value, str):
        return ValueType.STRING
    if isinstance(value, bool):
        return ValueType.BOOL
    if isinstance(value, np.generic):
        return dtype_type(value.dtype)
    if isinstance(value, np.ndarray | Strings | Arrays):
        return ValueType.ARRAY
    raise ValueTypeError(
        f"{brief(value)} is not a typed value", remedy="Make one with `ggufkit.typed`"
    )


def element_type(array: Array) -> ValueType:
    """Return the GGUF type of a typed array's elements; ValueTypeError for anything else."""
    if isinstance(array, Strings):
        return ValueType.STRING
    if isinstance(array, Arrays):
        return ValueType.ARRAY
    if isinstance(array, np.ndarray) and array.ndim == 1:
        return dtype_type(array.dtype)
    raise ValueTypeError(
        f"{brief(array)} is not a typed array", remedy="Make one with `ggufkit.typed`"
    )


def type_name(value: TypedValue) -> str:
    """Return the type in the notation of `typed`: "uint32", "array[string]", "array[array]"."""
    if isinstance(value, np.ndarray | Strings | Arrays):
        return f"array[{element_type(value).name.lower()}]"
    return value_type(value).name.lower()


def dtype_type(dtype: np.dtype[Any]) -> ValueType:
    """Return the GGUF type of a NumPy dtype in any byte order; ValueTypeError if it has none."""
    kind = _BY_DTYPE.get(dtype.newbyteorder("="))
    if kind is None:
        dtypes = ", ".join(str(d) for d in _BY_DTYPE)
        raise ValueTypeError(
            f"NumPy's {dtype} has no GGUF value type", remedy=f"Convert to one of {dtypes}"
        )
    return kind


def uint32_of(value: object) -> int | None:
    """Return the number of a uint32 value, None for a value of another type."""
    return int(value) if isinstance(value, np.uint32) else None
