"""How numbers and texts are encoded in a file of any version and byte order."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, Literal

from ggufkit.errors import ValueTypeError, brief

ByteOrder = Literal["little", "big"]
BYTE_ORDERS: Final = ("little", "big")
_ORDER: Final = {"little": "<", "big": ">"}


@dataclass(frozen=True)
class Encoding:
    """The encoding of values in a buffer: byte order, and whether counts have 8 bytes or 4."""

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
        return number.to_bytes(self.count_bytes, self.byte_order)

    def u32(self, number: int) -> bytes:
        """Encode a type id."""
        return struct.pack(self.mark + "I", number)


CANONICAL: Final = Encoding()


def is_utf8(text: str) -> bool:
    """Whether a string is valid UTF-8: lone surrogates stand for invalid bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def encode_string(text: str, encoding: Encoding) -> bytes:
    """Return length and bytes of a string; escaped invalid bytes are written unchanged."""
    if not isinstance(text, str):
        raise ValueTypeError(f"{brief(text)} is not a string", remedy="Pass a str")
    try:
        raw = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise ValueTypeError(
            f"the string {brief(text)} contains the surrogate {text[error.start]!r}, "
            "which UTF-8 cannot encode",
            remedy="Use text without surrogates",
        ) from None
    return encoding.count(len(raw)) + raw
