"""GGUF files written with `struct` alone, independent of the package under test.

A value is a pair of its type's name and its content: `("uint8", 7)`, `("string", b"text")`,
`("array", ("int8", [1, 2]))`, `("array", ("array", [("bool", [True]), ("string", [])]))`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from hypothesis import strategies as st

FORMATS: Final = {
    "uint8": (0, "B"),
    "int8": (1, "b"),
    "uint16": (2, "H"),
    "int16": (3, "h"),
    "uint32": (4, "I"),
    "int32": (5, "i"),
    "float32": (6, "f"),
    "bool": (7, "?"),
    "string": (8, ""),
    "array": (9, ""),
    "uint64": (10, "Q"),
    "int64": (11, "q"),
    "float64": (12, "d"),
}
NUMBERS: Final = tuple(name for name, (_, form) in FORMATS.items() if form)
MARKS: Final = {"little": "<", "big": ">"}
Typed = tuple[str, Any]


class SpelledTensor(NamedTuple):
    """A tensor: its dims as they are stored, ggml's number of its type, and its bytes."""

    name: str
    dims: tuple[int, ...]
    type: int
    data: bytes


@dataclass(frozen=True)
class Spelling:
    """A version and a byte order."""

    version: int = 3
    byte_order: str = "little"

    def number(self, form: str, number: Any) -> bytes:
        if isinstance(number, bytes):  # a float of particular bits, given as little endian
            return number if self.byte_order == "little" else number[::-1]
        return struct.pack(MARKS[self.byte_order] + form, number)

    def count(self, number: int) -> bytes:
        return self.number("I" if self.version == 1 else "Q", number)

    def string(self, text: str | bytes) -> bytes:
        raw = text.encode() if isinstance(text, str) else text
        return self.count(len(raw)) + raw

    def content(self, kind: str, value: Any) -> bytes:
        if kind == "string":
            return self.string(value)
        if kind == "array":
            element, items = value
            head = self.number("I", FORMATS[element][0]) + self.count(len(items))
            return head + b"".join(self.content(element, item) for item in items)
        return self.number(FORMATS[kind][1], value)

    def value(self, typed: Typed) -> bytes:
        kind, value = typed
        return self.number("I", FORMATS[kind][0]) + self.content(kind, value)

    def pairs(self, metadata: Iterable[tuple[str, Typed]]) -> bytes:
        return b"".join(self.string(key) + self.value(typed) for key, typed in metadata)

    def file(
        self,
        metadata: Iterable[tuple[str, Typed]] = (),
        tensors: Iterable[SpelledTensor] = (),
        alignment: int = 32,
        padding: bytes = b"\0",
    ) -> bytes:
        """Return the bytes of a whole file; `general.alignment` is left to `metadata`."""
        pairs, infos, data = list(metadata), b"", b""
        count = 0
        for name, dims, kind, content in tensors:
            infos += self.string(name) + self.number("I", len(dims))
            infos += b"".join(self.count(dim) for dim in dims)
            infos += self.number("I", kind) + self.number("Q", len(data))
            data += content + padding * (-len(content) % alignment)
            count += 1
        head = b"GGUF" + self.number("I", self.version) + self.count(count)
        head += self.count(len(pairs)) + self.pairs(pairs) + infos
        return head + padding * (-len(head) % alignment) + data


SPELLINGS: Final = [
    Spelling(version, order) for version in (1, 2, 3) for order in ("little", "big")
]


def spelling_id(spelling: Spelling) -> str:
    return f"version-{spelling.version}-{spelling.byte_order}"


def block_form(fields: str) -> str:
    """Return the layout of a block, such as "2 16*1" in widths, in the notation of `struct`."""
    letters = {"1": "B", "2": "H", "4": "I", "8": "Q"}
    parts = (field.rpartition("*") for field in fields.split())
    return "".join((count or "1") + letters[width] for count, _, width in parts)


def swapped(data: bytes, fields: str) -> bytes:
    """Return packed blocks in the other byte order."""
    form = block_form(fields)
    blocks = struct.iter_unpack("<" + form, data)
    return b"".join(struct.pack(">" + form, *block) for block in blocks)


# Values of every type, for hypothesis. Floats are bits, so that NaNs keep their payloads.

_SIZES: Final = {name: struct.calcsize("<" + FORMATS[name][1]) for name in NUMBERS}


def _numbers(kind: str) -> st.SearchStrategy[Any]:
    if kind == "bool":
        return st.booleans()
    if kind.startswith("float"):
        return st.binary(min_size=_SIZES[kind], max_size=_SIZES[kind])
    bits = 8 * _SIZES[kind]
    low, high = (0, 2**bits) if kind.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1))
    return st.integers(low, high - 1)


_strings = st.one_of(st.text(max_size=20).map(str.encode), st.binary(max_size=20))
_flat: Final = [st.tuples(st.just(kind), st.lists(_numbers(kind), max_size=5)) for kind in NUMBERS]
_arrays = st.recursive(
    st.one_of(*_flat, st.tuples(st.just("string"), st.lists(_strings, max_size=5))),
    lambda inner: st.tuples(st.just("array"), st.lists(inner, max_size=3)),
    max_leaves=6,
)
values: st.SearchStrategy[Typed] = st.one_of(
    *(st.tuples(st.just(kind), _numbers(kind)) for kind in NUMBERS),
    st.tuples(st.just("string"), _strings),
    st.tuples(st.just("array"), _arrays),
)
keys = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20
).filter(lambda key: key != "general.alignment")
metadata = st.dictionaries(keys, values, max_size=8).map(lambda pairs: list(pairs.items()))
