"""Metadata values: how each GGUF value type looks in Python, and its bytes in both directions.

Scalars are NumPy scalars (`np.uint32(7)`), `bool` and `str`; arrays of numbers and bools are
one-dimensional NumPy arrays; arrays of strings are `Strings`, arrays of arrays `Arrays`. All of
them know their GGUF type, so writing a value again gives the bytes it was read from.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, overload

import numpy as np

from ggufkit import _native
from ggufkit.errors import ValueTypeError
from ggufkit.types import VALUE_TYPES, ValueType

if TYPE_CHECKING:
    from typing_extensions import Buffer

ByteOrder = Literal["little", "big"]
# np.generic: a NumPy number, whose dtype says the GGUF type.
Value: TypeAlias = "bool | str | np.generic | np.ndarray[Any, np.dtype[Any]] | Strings | Arrays"
MAX_ARRAY_DEPTH: Final = 32  # as in the native scanner: deeper nesting is an attack, not a model
_ORDER: Final = {"little": "<", "big": ">"}
_BY_DTYPE: Final = {np.dtype(kind.dtype): kind for kind in ValueType if kind.dtype}
_INTEGERS: Final = (ValueType.UINT32, ValueType.INT32, ValueType.UINT64, ValueType.INT64)
_INNER: Final = np.dtype(
    [("element_type", "u4"), ("pad", "u4"), ("count", "u8"), ("value_at", "u8"), ("end", "u8")]
)


@dataclass(frozen=True)
class Layout:
    """How values lie in a buffer: the byte order, and whether counts have 8 bytes or 4."""

    byte_order: ByteOrder = "little"
    wide: bool = True  # version 1 files have 4-byte lengths and counts

    @property
    def count_bytes(self) -> int:
        """Bytes of a length or count."""
        return 8 if self.wide else 4

    @property
    def mark(self) -> str:
        """The byte order as `struct` and NumPy write it."""
        return _ORDER[self.byte_order]

    def count(self, number: int) -> bytes:
        """Encode a length or count."""
        return struct.pack(self.mark + ("Q" if self.wide else "I"), number)

    def u32(self, number: int) -> bytes:
        """Encode a type id."""
        return struct.pack(self.mark + "I", number)


CANONICAL: Final = Layout()


class _Packed(Sequence[Any]):
    """A run of encoded array elements inside a buffer, decoded when asked for."""

    __slots__ = ("_at", "_count", "_data", "_end", "_index", "_layout")

    def __init__(self, data: Buffer, at: int, end: int, count: int, layout: Layout) -> None:
        self._data = data
        self._at = at
        self._end = end
        self._count = count
        self._layout = layout
        self._index: np.ndarray[Any, np.dtype[Any]] | None = None

    def __len__(self) -> int:
        return self._count

    def encoded(self, layout: Layout) -> bytes:
        """Return the elements' bytes in `layout`; untouched ones are copied as they are."""
        if layout == self._layout:
            return bytes(memoryview(self._data)[self._at : self._end])
        return self._recoded(layout)

    def _recoded(self, layout: Layout) -> bytes:
        raise NotImplementedError

    def _position(self, index: int) -> int:
        position = index + self._count if index < 0 else index
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
        """Encode `items` once; a surrogate that is no escaped byte raises ValueTypeError."""
        packed = [encode_string(item, CANONICAL) for item in items]
        data = b"".join(packed)
        super().__init__(data, 0, len(data), len(packed), CANONICAL)

    @classmethod
    def lying(cls, data: Buffer, at: int, end: int, count: int, layout: Layout) -> Strings:
        """Make the sequence that lies encoded in `data[at:end]`."""
        strings = cls.__new__(cls)
        _Packed.__init__(strings, data, at, end, count, layout)
        return strings

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
        """Whether `item` is among the strings."""
        return item in self.tolist()

    def __eq__(self, other: object) -> bool:
        """Whether `other` is a sequence of the same strings."""
        if isinstance(other, Strings):
            return len(self) == len(other) and self.encoded(CANONICAL) == other.encoded(CANONICAL)
        if isinstance(other, list | tuple):
            return len(self) == len(other) and self.tolist() == list(other)
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Show the first items."""
        return _shorten("Strings", self, self._count)

    def raw(self, index: int) -> bytes:
        """Return the bytes of one item as they stand in the file."""
        if self._index is None:
            self._index = np.frombuffer(
                _native.string_index(
                    self._data, self._at, self._count, self._layout.wide, self._big
                ),
                "u8",
            )
        position = self._position(index)
        start = int(self._index[position]) + self._layout.count_bytes
        return bytes(memoryview(self._data)[start : int(self._index[position + 1])])

    def tolist(self) -> list[str]:
        """Decode all items into a list."""
        return self._decode(0, self._count)

    @property
    def _big(self) -> bool:
        return self._layout.byte_order == "big"

    def _decode(self, start: int, stop: int) -> list[str]:
        if stop <= start:
            return []
        if start and self._index is None:
            self.raw(start)
        at = self._at if start == 0 or self._index is None else int(self._index[start])
        return _native.strings(self._data, at, stop - start, self._layout.wide, self._big)

    def _recoded(self, layout: Layout) -> bytes:
        return b"".join(encode_string(item, layout) for item in self)


class Arrays(_Packed):
    """An array of arrays: a sequence of NumPy arrays, `Strings` or `Arrays`, decoded on demand."""

    __slots__ = ()

    def __init__(self, items: Iterable[object] = ()) -> None:
        """Encode `items` once; each must be an array, of any element types."""
        packed = [_encode_inner(item, CANONICAL, 1) for item in items]
        data = b"".join(packed)
        super().__init__(data, 0, len(data), len(packed), CANONICAL)

    @classmethod
    def lying(cls, data: Buffer, at: int, end: int, count: int, layout: Layout) -> Arrays:
        """Make the sequence that lies encoded in `data[at:end]`."""
        arrays = cls.__new__(cls)
        _Packed.__init__(arrays, data, at, end, count, layout)
        return arrays

    @overload
    def __getitem__(self, index: int) -> Value: ...
    @overload
    def __getitem__(self, index: slice) -> list[Value]: ...
    def __getitem__(self, index: int | slice) -> Value | list[Value]:
        """Decode one inner array, or the list of a slice."""
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(self._count))]
        if self._index is None:
            records = _native.array_index(
                self._data,
                self._at,
                self._count,
                self._layout.wide,
                self._layout.byte_order == "big",
            )
            self._index = np.frombuffer(records, _INNER)
        kind, _, count, at, end = self._index[self._position(index)].tolist()
        return decode_array(self._data, VALUE_TYPES[kind], count, at, end, self._layout)

    def __eq__(self, other: object) -> bool:
        """Whether `other` holds the same arrays, types included."""
        if isinstance(other, Arrays):
            return len(self) == len(other) and self.encoded(CANONICAL) == other.encoded(CANONICAL)
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Show the first items."""
        return _shorten("Arrays", self, self._count)

    def tolist(self) -> list[Any]:
        """Decode all into nested lists of plain Python values."""
        return [inner.tolist() for inner in self]

    def _recoded(self, layout: Layout) -> bytes:
        return b"".join(_encode_inner(inner, layout, 1) for inner in self)


def _shorten(name: str, items: Sequence[Any], count: int) -> str:
    shown = ", ".join(repr(item) for item in items[:3])
    return f"{name}([{shown}{', ...' if count > 3 else ''}], length={count})"  # noqa: PLR2004


# Bytes to values.


def decode_scalar(data: Buffer, kind: ValueType, at: int, end: int, layout: Layout) -> Value:
    """Return the scalar of type `kind` that lies in `data[at:end]`."""
    if kind is ValueType.STRING:
        raw = bytes(memoryview(data)[at + layout.count_bytes : end])
        return raw.decode("utf-8", "surrogateescape")
    if kind is ValueType.BOOL:
        return memoryview(data)[at] != 0
    number: np.generic = np.frombuffer(data, f"{layout.mark}{kind.dtype}", 1, at)[0]
    return number


def decode_array(  # noqa: PLR0913 (a span and its type: one idea)
    data: Buffer, kind: ValueType, count: int, at: int, end: int, layout: Layout
) -> Value:
    """Return the array of `count` elements of type `kind` that lies in `data[at:end]`."""
    if kind is ValueType.STRING:
        return Strings.lying(data, at, end, count, layout)
    if kind is ValueType.ARRAY:
        return Arrays.lying(data, at, end, count, layout)
    dtype = np.dtype(f"{layout.mark}{kind.dtype}")
    if count == 0:
        return np.empty(0, dtype)
    array = np.frombuffer(data, dtype, count, at)
    array.flags.writeable = False
    return array


# Values to bytes.


def encode_string(text: str, layout: Layout) -> bytes:
    """Return length and bytes of a string; escaped invalid bytes are written as they were."""
    try:
        raw = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise ValueTypeError(
            f"the string {text!r} holds the surrogate {text[error.start]!r}, which has no UTF-8",
            remedy="Use text without surrogates",
        ) from None
    return layout.count(len(raw)) + raw


def encode(value: Value, layout: Layout) -> bytes:
    """Return a typed value's bytes, beginning with its type id."""
    kind = value_type(value)
    head = layout.u32(kind.id)
    if kind is ValueType.ARRAY:
        return head + _encode_inner(value, layout, 0)
    if isinstance(value, str):
        return head + encode_string(value, layout)
    if isinstance(value, bool | np.bool_):
        return head + bytes([bool(value)])
    return head + np.asarray(value).astype(f"{layout.mark}{kind.dtype}").tobytes()


def _encode_inner(value: object, layout: Layout, depth: int) -> bytes:
    if depth >= MAX_ARRAY_DEPTH:
        raise ValueTypeError(
            f"arrays are nested deeper than {MAX_ARRAY_DEPTH} levels", remedy="Nest them less"
        )
    array = typed_array(value)
    element = element_type(array)
    head = layout.u32(element.id) + layout.count(len(array))
    if isinstance(array, np.ndarray):
        return head + array.astype(array.dtype.newbyteorder(layout.mark), copy=False).tobytes()
    return head + array.encoded(layout)


# The type of a value.


def value_type(value: object) -> ValueType:
    """Return the GGUF type of a typed value."""
    if isinstance(value, str):
        return ValueType.STRING
    if isinstance(value, bool):
        return ValueType.BOOL
    if isinstance(value, np.generic):
        return _dtype_type(value.dtype)
    return ValueType.ARRAY


def element_type(array: np.ndarray[Any, Any] | Strings | Arrays) -> ValueType:
    """Return the GGUF type of a typed array's elements."""
    if isinstance(array, Strings):
        return ValueType.STRING
    if isinstance(array, Arrays):
        return ValueType.ARRAY
    return _dtype_type(array.dtype)


def type_name(value: Value) -> str:
    """Return the type in the notation of `typed`: "uint32", "array[string]", "array[array]"."""
    kind = value_type(value)
    if kind is ValueType.ARRAY:
        return f"array[{element_type(typed_array(value)).name.lower()}]"
    return kind.name.lower()


def _dtype_type(dtype: np.dtype[Any]) -> ValueType:
    kind = _BY_DTYPE.get(dtype.newbyteorder("="))
    if kind is None:
        known = ", ".join(str(each) for each in _BY_DTYPE)
        raise ValueTypeError(
            f"NumPy's {dtype} has no GGUF value type", remedy=f"Convert to one of {known}"
        )
    return kind


# Plain Python values to typed ones.


def typed(type: str | ValueType, value: object) -> Value:
    """Return `value` as a value of the GGUF `type`, or raise ValueTypeError if it does not fit.

    `type` is a ValueType or its name in any case: "uint8" … "float64", "bool", "string",
    "array[uint64]", "array[string]", "array[array]" (each inner array typed on its own).
    Integers must be in range and floats are rounded to the nearest; nothing else is converted.
    """
    name = type.name if isinstance(type, ValueType) else str(type)
    folded = name.strip().upper()
    if folded.startswith("ARRAY[") and folded.endswith("]"):
        return _typed_elements(_value_type(folded[6:-1]), value)
    kind = _value_type(folded)
    if kind is ValueType.ARRAY:
        return typed_array(value)
    return _typed_scalar(kind, value)


def typed_value(value: object) -> Value:
    """Return `value` with a GGUF type: its own, or the documented default of a plain value.

    NumPy scalars and arrays keep their dtype. Of plain values, `bool` is bool, `str` string,
    `float` float32 (rounded to nearest; too large is an error), and `int` the first of uint32,
    int32, uint64 and int64 that holds it. A list or tuple is an array of the one type that holds
    all its items; an empty one has no type, so `typed("array[string]", [])` must say it.
    """
    if isinstance(value, Strings | Arrays | str | bool):
        return value
    if isinstance(value, np.generic):
        return _kept_scalar(value)
    if isinstance(value, int | float):
        return _typed_scalar(_default_type([value]), value)
    return typed_array(value)


def typed_array(value: object) -> np.ndarray[Any, Any] | Strings | Arrays:
    """Return `value` as a typed array, as `typed_value` does."""
    if isinstance(value, Strings | Arrays):
        return value
    if isinstance(value, np.ndarray):
        return _kept_array(value)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        return _typed_list(list(value))
    name = value.__class__.__name__
    raise ValueTypeError(
        f"a value of Python type {name} has no GGUF type",
        remedy="Use str, bool, int, float, a list of these, or NumPy scalars and arrays",
    )


def plain(value: Value) -> Any:
    """Return the value as plain Python: int, float, bool, str, or (nested) lists of these."""
    return value if isinstance(value, str | bool) else value.tolist()


def _value_type(name: str) -> ValueType:
    try:
        return ValueType[name]
    except KeyError:
        known = ", ".join(kind.name.lower() for kind in ValueType)
        raise ValueTypeError(
            f"unknown value type {name.lower()!r}", remedy=f"Use one of {known}, or array[...]"
        ) from None


def _kept_scalar(value: np.generic) -> Value:
    if isinstance(value, np.str_):
        return str(value)
    if isinstance(value, np.bool_):
        return bool(value)
    _dtype_type(value.dtype)
    return value


def _kept_array(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | Strings:
    if array.ndim != 1:
        raise ValueTypeError(
            f"an array of {array.ndim} dimensions is no GGUF value",
            remedy="Use one dimension, or `list(array)` for an array of arrays",
        )
    if array.dtype.kind == "U":
        return Strings(array.tolist())
    _dtype_type(array.dtype)
    frozen = array.copy()
    frozen.flags.writeable = False
    return frozen


def _typed_list(items: list[Any]) -> np.ndarray[Any, Any] | Strings | Arrays:
    if not items:
        raise ValueTypeError(
            "an empty list has no element type",
            remedy='Say it: typed("array[string]", []), or an empty NumPy array',
        )
    if all(isinstance(item, np.generic) for item in items):
        kinds = {_dtype_type(item.dtype) for item in items if not isinstance(item, np.str_)}
        if len(kinds) == 1 and not isinstance(items[0], np.str_):
            return np.array(items, kinds.pop().dtype)
    if all(isinstance(item, str) for item in items):
        return Strings(items)
    if all(_is_array(item) for item in items):
        return Arrays(items)
    return _elements(_default_type(items), items)


def _is_array(item: object) -> bool:
    return isinstance(item, list | tuple | np.ndarray | Strings | Arrays)


def _default_type(items: list[Any]) -> ValueType:
    kinds = {item.__class__ for item in items}
    if kinds == {bool}:
        return ValueType.BOOL
    if kinds == {float}:
        return ValueType.FLOAT32
    if kinds == {int}:
        low, high = min(items), max(items)
        for kind in _INTEGERS:
            limits = np.iinfo(str(kind.dtype))
            if limits.min <= low and high <= limits.max:
                return kind
        raise ValueTypeError(f"no GGUF integer type holds {low if low < 0 else high}")
    names = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise ValueTypeError(
        f"one GGUF array cannot hold values of {names}",
        remedy="Make all items one type, or say it: typed('array[float32]', items)",
    )


def _typed_elements(kind: ValueType, value: object) -> Value:
    if isinstance(value, np.ndarray | Strings | Arrays):
        items: list[Any] = value.tolist() if not isinstance(value, Arrays) else list(value)
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping):
        items = list(value)
    else:
        raise ValueTypeError(f"{value!r} is no array", remedy="Give a list")
    if kind is ValueType.ARRAY:
        return Arrays(items)
    return _elements(kind, items)


def _elements(kind: ValueType, items: list[Any]) -> np.ndarray[Any, Any] | Strings:
    if kind is ValueType.STRING:
        return Strings(str(_typed_scalar(kind, item)) for item in items)
    array = np.array([_typed_scalar(kind, item) for item in items], kind.dtype)
    array.flags.writeable = False
    return array


def _typed_scalar(kind: ValueType, value: object) -> bool | str | np.generic:
    item = value.item() if isinstance(value, np.generic) else value
    if kind is ValueType.STRING and isinstance(item, str):
        encode_string(item, CANONICAL)
        return item
    if kind is ValueType.BOOL and isinstance(item, bool):
        return item
    if kind.dtype and kind is not ValueType.BOOL and not isinstance(item, bool):
        number = _number(np.dtype(kind.dtype), item)
        if number is not None:
            return number
    raise ValueTypeError(
        f"{value!r} does not fit the GGUF type {kind.name.lower()}",
        remedy="Give a value of that type, or name another type",
    )


def _number(dtype: np.dtype[Any], item: object) -> np.generic | None:
    if dtype.kind == "f":
        return _float(dtype, item) if isinstance(item, int | float) else None
    limits = np.iinfo(dtype)
    if isinstance(item, int) and limits.min <= item <= limits.max:
        integer: np.generic = dtype.type(item)
        return integer
    return None


def _float(dtype: np.dtype[Any], item: float) -> np.generic | None:
    try:
        wide = float(item)
    except OverflowError:
        return None
    with np.errstate(over="ignore"):
        number: np.generic = dtype.type(wide)
    if np.isinf(number) and not np.isinf(wide):
        return None
    exact = isinstance(item, float) or int(number) == item
    return number if exact else None


def require_uint32(value: object) -> int | None:
    """Return the number of a uint32 value, None for a value of another type."""
    return int(value) if isinstance(value, np.uint32) else None


__all__ = [
    "CANONICAL",
    "Arrays",
    "ByteOrder",
    "Layout",
    "Strings",
    "Value",
    "decode_array",
    "decode_scalar",
    "encode",
    "encode_string",
    "plain",
    "typed",
    "typed_array",
    "typed_value",
    "type_name",
    "value_type",
]
