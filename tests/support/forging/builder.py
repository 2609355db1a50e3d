"""Make GGUF files by hand: valid by default, and every field can be set to a false value."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
CODES = dict(
    zip((U8, I8, U16, I16, U32, I32, F32, BOOL, U64, I64, F64), "BbHhIifBQqd", strict=True)
)
F32_TENSOR, Q8_0, Q4_K, I8_TENSOR = 0, 8, 12, 24
# Elements and bytes of a block, for the few types whose tensors get real data here.
BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 8: (32, 34), 12: (256, 144), 24: (1, 1), 28: (1, 8)}


@dataclass(frozen=True)
class Form:
    """How numbers and lengths lie: byte order, and 8 bytes or (version 1) 4 for a length."""

    mark: str = "<"
    wide: bool = True

    def number(self, code: str, value: float) -> bytes:
        return struct.pack(self.mark + code, value)

    def count(self, value: int) -> bytes:
        return self.number("Q" if self.wide else "I", value)


class Part(Protocol):
    """Anything that can be written in a form."""

    def encode(self, form: Form) -> bytes: ...


@dataclass(frozen=True)
class Raw:
    """Bytes as they are."""

    data: bytes

    def encode(self, form: Form) -> bytes:  # noqa: ARG002 (a part, in any form)
        return self.data


@dataclass(frozen=True)
class Number:
    """A number of a value type."""

    type: int
    value: float

    def encode(self, form: Form) -> bytes:
        return form.number(CODES[self.type], self.value)


@dataclass(frozen=True)
class Text:
    """A string, whose length may lie."""

    text: bytes
    length: int | None = None

    def encode(self, form: Form) -> bytes:
        return form.count(len(self.text) if self.length is None else self.length) + self.text


@dataclass(frozen=True)
class Array:
    """An array of parts, whose count may lie."""

    type: int
    items: Sequence[Part] = ()
    count: int | None = None

    def encode(self, form: Form) -> bytes:
        count = form.count(len(self.items) if self.count is None else self.count)
        return form.number("I", self.type) + count + b"".join(i.encode(form) for i in self.items)


@dataclass(frozen=True)
class Pair:
    """A key, a value type and a value."""

    key: Text
    type: int
    value: Part

    def encode(self, form: Form) -> bytes:
        return self.key.encode(form) + form.number("I", self.type) + self.value.encode(form)


@dataclass(frozen=True)
class Info:
    """A tensor info; `nbytes` of data are made for it, at `offset` if none is said to be next."""

    name: Text
    dims: Sequence[int] = (4,)
    type: int = F32_TENSOR
    offset: int | None = None
    n_dims: int | None = None
    size: int | None = None

    @property
    def nbytes(self) -> int:
        if self.size is not None:
            return self.size
        elements, nbytes = BLOCKS[self.type]
        return math.prod(self.dims) // elements * nbytes

    def encode(self, form: Form) -> bytes:
        n_dims = len(self.dims) if self.n_dims is None else self.n_dims
        dims = b"".join(form.count(dim) for dim in self.dims)
        ends = form.number("I", self.type) + form.number("Q", self.offset or 0)
        return self.name.encode(form) + form.number("I", n_dims) + dims + ends


def text(value: str | bytes) -> Text:
    return Text(value.encode() if isinstance(value, str) else value)


def number(key: str | bytes, type: int, value: float) -> Pair:
    return Pair(text(key), type, Number(type, value))


def string(key: str | bytes, value: str | bytes) -> Pair:
    return Pair(text(key), STRING, text(value))


def array(key: str | bytes, type: int, values: Sequence[Any], count: int | None = None) -> Pair:
    """Make an array of numbers, of strings, or of parts as they are."""
    return Pair(text(key), ARRAY, Array(type, [_item(type, value) for value in values], count))


def _item(type: int, value: Any) -> Part:
    if isinstance(value, str | bytes):
        return text(value)
    return Number(type, value) if isinstance(value, int | float) else value


def tensor(name: str | bytes, *dims: int, type: int = F32_TENSOR, **fields: Any) -> Info:
    """Make a tensor info; `dims` as they are stored, the fastest-varying first."""
    return Info(text(name), dims, type, **fields)


ARCHITECTURE = string("general.architecture", "llama")


@dataclass(frozen=True)
class Forge:
    """A file: `build` gives its bytes. A field of the header that is given lies."""

    pairs: Sequence[Part] = (ARCHITECTURE,)
    infos: Sequence[Part] = (tensor("a", 8, 2), tensor("b", 4))
    version: int = 3
    mark: str = "<"
    alignment: int = 32
    magic: bytes = b"GGUF"
    version_field: int | None = None
    tensor_count: int | None = None
    kv_count: int | None = None
    padding: bytes = b"\0"
    data: bytes | None = None
    tail: bytes = b""
    pad_end: bool = True

    @property
    def form(self) -> Form:
        return Form(self.mark, self.version != 1)

    def build(self) -> bytes:
        """Return the bytes of the file."""
        infos, data = self._laid_out()
        head = self.header(infos)
        if self.data is not None:
            data = self.data
        gap = self._gap(len(head)) if infos or data else b""
        return head + gap + data + self.tail

    def header(self, infos: Sequence[Part] | None = None) -> bytes:
        """Return everything before the padding."""
        form = self.form
        infos = self._laid_out()[0] if infos is None else infos
        version = self.version if self.version_field is None else self.version_field
        tensors = len(infos) if self.tensor_count is None else self.tensor_count
        pairs = len(self.pairs) if self.kv_count is None else self.kv_count
        counts = form.count(tensors) + form.count(pairs)
        parts = b"".join(part.encode(form) for part in (*self.pairs, *infos))
        return self.magic + form.number("I", version) + counts + parts

    def _gap(self, nbytes: int) -> bytes:
        return self.padding * (-nbytes % self.alignment)

    def _laid_out(self) -> tuple[list[Part], bytes]:
        """Give each tensor its place, and make the data."""
        infos: list[Part] = []
        data = bytearray()
        for info in self.infos:
            if isinstance(info, Info):
                offset = len(data) if info.offset is None else info.offset
                infos.append(replace(info, offset=offset))
                data += bytes(1 + i % 251 for i in range(info.nbytes))
                if self.pad_end or info is not self.infos[-1]:
                    data += self._gap(len(data))
            else:
                infos.append(info)
        return infos, bytes(data)
