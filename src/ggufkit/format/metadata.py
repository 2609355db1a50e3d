"""Metadata: an ordered mapping of keys to typed values, decoded when asked for."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NoReturn

import numpy as np

from ggufkit.errors import FormatError, MissingKeyError, ValueTypeError, brief
from ggufkit.format.coerce import typed_value
from ggufkit.format.encoding import CANONICAL, Encoding, is_utf8
from ggufkit.format.types import DEFAULT_ALIGNMENT, MAX_KEY_BYTES, VALUE_TYPES, ValueType
from ggufkit.format.values import (
    Value,
    decode_array,
    decode_scalar,
    encode,
    require_uint32,
    type_name,
)
from ggufkit.system.mapped_file import Data, view

MIN_ALIGNMENT: Final = 8  # the specification: a power of two and a multiple of 8


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

    def decode(self) -> Value:
        """Return the value; arrays of strings and of arrays stay packed inside it."""
        if self.element_type is None:
            return decode_scalar(self.data, self.type, self.value_at, self.end, self.encoding)
        return decode_array(
            self.data, self.element_type, self.count, self.value_at, self.end, self.encoding
        )

    def bytes(self, encoding: Encoding) -> bytes:
        """Return the bytes in `encoding`, copied unchanged if they already have it."""
        if encoding == self.encoding:
            with view(self.data) as raw:
                return bytes(raw[self.start : self.end])
        return encode(self.decode(), encoding)

    @property
    def type_name(self) -> str:
        """The type in the notation of `typed`."""
        if self.element_type is None:
            return self.type.name.lower()
        return f"array[{self.element_type.name.lower()}]"


class Metadata(Mapping[str, Value]):
    """The key-value pairs of a model, in order. Immutable: `updated` and `without` make new ones.

    Values come as `ggufkit.format.values` says: typed, and arrays decoded only when asked for.
    """

    __slots__ = ("_entries",)

    def __init__(self, items: Mapping[str, object] | Iterable[tuple[str, object]] = ()) -> None:
        """Type each plain value by the defaults of `ggufkit.format.coerce.typed_value`."""
        self._entries = _typed_entries(items)

    @classmethod
    def encoded(cls, entries: Iterable[tuple[str, Encoded]]) -> Metadata:
        """Make the metadata of an opened file; values are decoded later."""
        metadata = cls()
        metadata._entries.update(entries)
        return metadata

    def __getitem__(self, key: str) -> Value:
        """Return a value; an unknown key raises MissingKeyError with the nearest one."""
        entry = self.entry(key)
        return entry.decode() if isinstance(entry, Encoded) else entry

    def __iter__(self) -> Iterator[str]:
        """Iterate over the keys in file order."""
        return iter(self._entries)

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        """Whether the key exists."""
        return key in self._entries

    def __eq__(self, other: object) -> bool:
        """Whether the same keys in the same order have the same types and bytes."""
        if not isinstance(other, Metadata):
            return NotImplemented
        return self.encode(CANONICAL) == other.encode(CANONICAL)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Show keys and types, no values."""
        shown = ", ".join(f"{key}: {self.type_name(key)}" for key in self)
        return f"Metadata({shown})"

    def type_name(self, key: str) -> str:
        """Return the type of a value: "uint32", "string", "array[string]", …, undecoded."""
        entry = self.entry(key)
        return entry.type_name if isinstance(entry, Encoded) else type_name(entry)

    def text(self, key: str) -> str:
        """Return the text of a key, empty where there is no such key.

        Raises ValueTypeError for a value of another type, as `integer` does.
        """
        value = self[key] if key in self else ""  # noqa: SIM401 (`get` seeks the nearest)
        return value if isinstance(value, str) else self._refuse(key, "a string")

    def integer(self, key: str) -> int | None:
        """Return the whole number of a key, None where there is no such key."""
        if key not in self:
            return None
        value = self[key]
        return int(value) if isinstance(value, np.integer) else self._refuse(key, "a whole number")

    def _refuse(self, key: str, wanted: str) -> NoReturn:
        raise ValueTypeError(
            f"{key} is of type {self.type_name(key)}, but it must be {wanted}",
            remedy="Correct the key with `ggufkit edit`, or get another file",
        )

    def updated(self, items: Mapping[str, object]) -> Metadata:
        """Return metadata with `items` set: known keys keep their place, new keys are appended."""
        changed = Metadata(items)
        changed._entries = {**self._entries, **changed._entries}
        return changed

    def without(self, *keys: str) -> Metadata:
        """Return metadata without `keys`; unknown ones are ignored."""
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

    def entry(self, key: str) -> Encoded | Value:
        """Return a value as stored: undecoded if it came from a file."""
        try:
            return self._entries[key]
        except KeyError:
            near = difflib.get_close_matches(str(key), self._entries, 1)
            remedy = f"Did you mean {near[0]!r}?" if near else ""
            raise MissingKeyError(f"the model has no key {key!r}", remedy=remedy) from None


def value_types(kind: int, element: int) -> tuple[ValueType, ValueType | None]:
    """Return value and element type of a scanner record (element None: no array)."""
    return VALUE_TYPES[kind], VALUE_TYPES.get(element)


def _typed_entries(
    items: Mapping[str, object] | Iterable[tuple[str, object]],
) -> dict[str, Encoded | Value]:
    if isinstance(items, Metadata):
        return {key: items.entry(key) for key in items}
    pairs = items.items() if isinstance(items, Mapping) else items
    return {_checked_key(key): _typed_for(key, value) for key, value in pairs}


def _checked_key(key: object) -> str:
    if not isinstance(key, str) or not key or "\0" in key or not is_utf8(key):
        raise ValueTypeError(
            f"{brief(key)} is not a valid key", remedy="Use a non-empty string of UTF-8 without NUL"
        )
    size = len(key.encode())
    if size > MAX_KEY_BYTES:
        raise ValueTypeError(f"a key of {size} bytes exceeds the limit of {MAX_KEY_BYTES}")
    return key


def _typed_for(key: str, value: object) -> Encoded | Value:
    try:
        return typed_value(value)
    except ValueTypeError as error:
        raise ValueTypeError(f"{key}: {error.message}", remedy=error.remedy) from None


def alignment_of(metadata: Metadata) -> int:
    """Return general.alignment, or 32; raises FormatError for a value that is no alignment."""
    if "general.alignment" not in metadata:
        return DEFAULT_ALIGNMENT
    number = require_uint32(metadata["general.alignment"])
    if number is None or not is_alignment(number):
        raise FormatError(
            f"general.alignment is {metadata['general.alignment']}",
            remedy="Use a uint32 that is a power of two and at least 8",
        )
    return number


def is_alignment(number: int) -> bool:
    """Whether `number` is a power of two and a multiple of 8."""
    return number >= MIN_ALIGNMENT and number & (number - 1) == 0
