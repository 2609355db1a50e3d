"""Metadata: an ordered mapping of keys to typed values, decoded when asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeVar, overload

import numpy as np

from ggufkit.errors import FormatError, MissingKeyError, ValueTypeError, brief, did_you_mean
from ggufkit.format.arguments import texts
from ggufkit.format.coerce import plain_exactly, typed, typed_value
from ggufkit.format.encoding import CANONICAL, Encoding, is_utf8
from ggufkit.format.html import SHOWN_ROWS, table
from ggufkit.format.key_types import known_type
from ggufkit.format.types import DEFAULT_ALIGNMENT, MAX_KEY_BYTES, ValueType
from ggufkit.format.values import (
    Strings,
    TypedValue,
    Value,
    decode_array,
    decode_scalar,
    encode,
    python_value,
    type_name,
    uint32_of,
)
from ggufkit.system.mapped_file import Data, view

MIN_ALIGNMENT: Final = 8  # the specification: a power of two and a multiple of 8
_PLAIN: Final = (bool, int, float, str, list, tuple, range)  # without a GGUF type of their own
Default = TypeVar("Default")


@dataclass(frozen=True)
class Encoded:
    """An undecoded value in a file: type id at `start`, payload from `value_at` to `end`."""

    data: Data
    encoding: Encoding
    type: ValueType
    element_type: ValueType | None
    count: int
    start: int
    value_at: int
    end: int

    def decode(self) -> TypedValue:
        """Return the typed value; arrays of strings and of arrays stay packed inside it."""
        if self.element_type is None:
            return decode_scalar(self.data, self.type, self.value_at, self.end, self.encoding)
        return decode_array(
            self.data, self.element_type, self.count, self.value_at, self.end, self.encoding
        )

    def is_utf8(self) -> bool:
        """Whether a text is valid UTF-8, found out without decoding it."""
        text = Strings.over(self.data, self.value_at, self.end, 1, self.encoding)
        return text.first_invalid() is None

    def bytes(self, encoding: Encoding) -> bytes:
        """Return the bytes in `encoding`, copied unchanged if they already have it."""
        if encoding == self.encoding:
            with view(self.data) as raw:
                return bytes(raw[self.start : self.end])
        return encode(self.decode(), encoding)

    def nbytes(self, encoding: Encoding) -> int:
        """Return the number of bytes in `encoding`."""
        is_same = encoding == self.encoding
        return self.end - self.start if is_same else len(encode(self.decode(), encoding))

    @property
    def type_name(self) -> str:
        """The type in the notation of `typed`."""
        if self.element_type is None:
            return self.type.name.lower()
        return f"array[{self.element_type.name.lower()}]"


class Metadata(Mapping[str, Value]):
    """The key-value pairs of a model, in order. Immutable: `updated` and `without` make new ones.

    Numbers are Python's; `typed` and `type_name` tell the exact type. Arrays of numbers are
    read-only NumPy arrays, arrays of strings `Strings`, arrays of arrays `Arrays`. Values are
    decoded when asked for.
    """

    __slots__ = ("_entries",)

    def __init__(self, items: Mapping[str, object] | Iterable[tuple[str, object]] = ()) -> None:
        """Type each plain value as llama.cpp reads its key, or as `typed_value` does."""
        self._entries = _typed_entries(items, {})

    @classmethod
    def encoded(cls, entries: Iterable[tuple[str, Encoded]]) -> Metadata:
        """Make the metadata of an opened file; values are decoded later."""
        metadata = cls()
        metadata._entries.update(entries)
        return metadata

    def __getitem__(self, key: str) -> Value:
        """Return a value; an unknown key raises MissingKeyError with the nearest one."""
        return python_value(self.typed(key))

    @overload
    def get(self, key: str, default: None = None, /) -> Value | None: ...
    @overload
    def get(self, key: str, default: Value | Default, /) -> Value | Default: ...
    def get(self, key: str, default: object = None, /) -> object:
        """Return a value, or `default` if the key is missing."""
        return self[key] if key in self._entries else default

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __eq__(self, other: object) -> bool:
        """Whether the same keys in the same order have the same types and bytes."""
        if not isinstance(other, Metadata):
            return NotImplemented
        return self.encode(CANONICAL) == other.encode(CANONICAL)

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Show keys and types, no values."""
        entries = ", ".join(f"{key}: {self.type_name(key)}" for key in self)
        return f"Metadata({entries})"

    def __reduce__(self) -> tuple[type[Metadata], tuple[list[tuple[str, TypedValue]]]]:
        """Pickle the typed values, which need no file."""
        return Metadata, (list(self.typed_items()),)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)

    def _repr_html_(self) -> str:
        keys = list(self)[:SHOWN_ROWS]
        rows = [(key, self.type_name(key), self[key]) for key in keys]
        return table(("key", "type", "value"), rows, len(self))

    # Plain Python, and exact types.

    @classmethod
    def from_dict(
        cls, values: Mapping[str, object], types: Mapping[str, str] | None = None
    ) -> Metadata:
        """Return metadata made of plain values, as `to_dict` returns them.

        `types` names the types of some keys, as `type_name` does. Other keys get the type that
        llama.cpp reads. A list of integers becomes int32 if they fit, as in gguf-py, and an empty
        list becomes an array of strings. Raises ValueTypeError for a value that does not fit its
        type.
        """
        type_names = types or {}
        return cls(
            (key, typed(kind, value) if kind else value)
            for key, value in values.items()
            for kind in [type_names.get(key) or known_type(key) or _type_of_list(value)]
        )

    def typed(self, key: str) -> TypedValue:
        """Return a value with its GGUF type: numbers are NumPy scalars, such as `np.uint32(2)`."""
        entry = self.entry(key)
        return entry.decode() if isinstance(entry, Encoded) else entry

    def type_name(self, key: str) -> str:
        """Return the type of a value: "uint32", "string", "array[string]", …, undecoded."""
        entry = self.entry(key)
        return entry.type_name if isinstance(entry, Encoded) else type_name(entry)

    def typed_items(self) -> Iterator[tuple[str, TypedValue]]:
        """Iterate over keys and typed values; `Metadata` made from them has the same types."""
        return ((key, self.typed(key)) for key in self)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain Python for `json.dumps`; `from_dict` is the way back."""
        return {key: plain_exactly(self.typed(key)) for key in self}

    # Getters of one type: all raise ValueTypeError for a value of another type, and for a missing
    # key return the default. Without one they raise MissingKeyError.

    @overload
    def text(self, key: str) -> str: ...
    @overload
    def text(self, key: str, default: Default) -> str | Default: ...
    def text(self, key: str, default: object = ...) -> object:
        """Return the text of a key."""
        return self._get(key, default, str, "a string")

    @overload
    def integer(self, key: str) -> int: ...
    @overload
    def integer(self, key: str, default: Default) -> int | Default: ...
    def integer(self, key: str, default: object = ...) -> object:
        """Return the whole number of a key."""
        return self._get(key, default, int, "a whole number")

    @overload
    def number(self, key: str) -> float: ...
    @overload
    def number(self, key: str, default: Default) -> float | Default: ...
    def number(self, key: str, default: object = ...) -> object:
        """Return the number of a key, whole or not."""
        return self._get(key, default, (int, float), "a number")

    @overload
    def boolean(self, key: str) -> bool: ...
    @overload
    def boolean(self, key: str, default: Default) -> bool | Default: ...
    def boolean(self, key: str, default: object = ...) -> object:
        """Return the bool of a key."""
        return self._get(key, default, bool, "a bool")

    @overload
    def texts(self, key: str) -> list[str]: ...
    @overload
    def texts(self, key: str, default: Default) -> list[str] | Default: ...
    def texts(self, key: str, default: object = ...) -> object:
        """Return the strings of an array."""
        return self._get(key, default, Strings, "an array of strings")

    @overload
    def numbers(self, key: str) -> np.ndarray[Any, np.dtype[Any]]: ...
    @overload
    def numbers(self, key: str, default: Default) -> np.ndarray[Any, np.dtype[Any]] | Default: ...
    def numbers(self, key: str, default: object = ...) -> object:
        """Return the numbers or bools of an array."""
        return self._get(key, default, np.ndarray, "an array of numbers")

    def _get(
        self, key: str, default: object, kind: type | tuple[type, ...], expected: str
    ) -> object:
        """Return a value of a kind; for a missing key the default, if there is one."""
        if key not in self and default is not ...:
            return default
        value = self[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ValueTypeError(
                f"{key} is of type {self.type_name(key)}, but it must be {expected}",
                remedy="Correct the key with `ggufkit edit`, or get another file",
            )
        return value.tolist() if isinstance(value, Strings) else value

    # Changes.

    def updated(self, items: Mapping[str, object]) -> Metadata:
        """Return metadata with `items` set: known keys keep their place, new keys are appended.

        A plain value keeps the type of its key if it fits; else it gets the type of a new one.
        """
        changed = Metadata()
        changed._entries = {**self._entries, **_typed_entries(items, self._entries)}
        return changed

    def __or__(self, items: Mapping[str, object]) -> Metadata:
        """Return `metadata.updated(items)`: other values keep their types."""
        return self.updated(items)

    def without(self, *keys: str, missing_ok: bool = False) -> Metadata:
        """Return metadata without `keys`; MissingKeyError for unknown ones unless `missing_ok`."""
        for key in texts("keys", keys):
            if not missing_ok:
                self.entry(key)
        changed = Metadata()
        changed._entries = {k: v for k, v in self._entries.items() if k not in keys}
        return changed

    def arranged(self, keys: Iterable[str]) -> Metadata:
        """Return metadata with just `keys`, in their order; MissingKeyError for unknown ones."""
        changed = Metadata()
        changed._entries = {key: self.entry(key) for key in keys}
        return changed

    def renamed(self, names: Mapping[str, str]) -> Metadata:
        """Return metadata with other names for some keys, which keep place and value."""
        changed = Metadata()
        for key, value in self._entries.items():
            changed._entries[_checked_key(names[key]) if key in names else key] = value
        return changed

    def encode(self, encoding: Encoding) -> bytes:
        """Return the encoded bytes of all key-value pairs."""
        parts: list[bytes] = []
        for key, entry in self._entries.items():
            name = key.encode()
            value = entry.bytes(encoding) if isinstance(entry, Encoded) else encode(entry, encoding)
            parts += (encoding.count(len(name)), name, value)
        return b"".join(parts)

    def entry(self, key: str) -> Encoded | TypedValue:
        """Return a value as stored: undecoded if it came from a file."""
        try:
            return self._entries[key]
        except KeyError:
            remedy = did_you_mean(str(key), self._entries)
            raise MissingKeyError(f"the model has no key {key!r}", remedy=remedy) from None


def encoded_nbytes(metadata: Metadata, encoding: Encoding) -> int:
    """Return the number of bytes that `encode` returns; values of files are not copied."""
    entries = map(metadata.entry, metadata)
    values = (
        entry.nbytes(encoding) if isinstance(entry, Encoded) else len(encode(entry, encoding))
        for entry in entries
    )
    return sum(encoding.count_bytes + len(key.encode()) for key in metadata) + sum(values)


def _typed_entries(
    items: Mapping[str, object] | Iterable[tuple[str, object]],
    previous: Mapping[str, Encoded | TypedValue],
) -> dict[str, Encoded | TypedValue]:
    """Return `items` with types: their own, else that of the previous value, else the default."""
    if isinstance(items, Metadata):
        return {key: items.entry(key) for key in items}
    pairs = items.items() if isinstance(items, Mapping) else items
    return {_checked_key(key): _typed_for(key, value, previous.get(key)) for key, value in pairs}


def _checked_key(key: object) -> str:
    if not isinstance(key, str) or not key or "\0" in key or not is_utf8(key):
        raise ValueTypeError(
            f"{brief(key)} is not a valid key", remedy="Use a non-empty string of UTF-8 without NUL"
        )
    size = len(key.encode())
    if size > MAX_KEY_BYTES:
        raise ValueTypeError(f"a key of {size} bytes exceeds the limit of {MAX_KEY_BYTES}")
    return key


def _typed_for(
    key: str, value: object, present: Encoded | TypedValue | None
) -> Encoded | TypedValue:
    if isinstance(value, _PLAIN) and (name := _type_of(present) or known_type(key)):
        with contextlib.suppress(ValueTypeError):
            return typed(name, value)
    try:
        return typed_value(value)
    except ValueTypeError as error:
        raise ValueTypeError(f"{key}: {error.message}", remedy=error.remedy) from None


def _type_of_list(value: object) -> str | None:
    """Return the type of a list that gguf-py gives it; None for any other value."""
    if value == []:
        return "array[string]"
    limits = np.iinfo(np.int32)
    is_int32 = isinstance(value, list) and all(
        type(item) is int and limits.min <= item <= limits.max for item in value
    )
    return "array[int32]" if is_int32 else None


def _type_of(present: Encoded | TypedValue | None) -> str | None:
    if present is None:
        return None
    return present.type_name if isinstance(present, Encoded) else type_name(present)


def alignment_of(metadata: Metadata) -> int:
    """Return general.alignment, or 32; raises FormatError for an impossible value."""
    if "general.alignment" not in metadata:
        return DEFAULT_ALIGNMENT
    number = uint32_of(metadata.typed("general.alignment"))
    if number is None or not is_alignment(number):
        raise FormatError(
            f"general.alignment is {metadata['general.alignment']}",
            remedy="Use a uint32 that is a power of two and at least 8",
        )
    return number


def is_alignment(number: int) -> bool:
    """Whether `number` is a power of two and a multiple of 8."""
    return number >= MIN_ALIGNMENT and number & (number - 1) == 0
