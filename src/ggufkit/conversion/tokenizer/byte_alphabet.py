"""GPT-2's alphabet: every byte as a visible character."""

from __future__ import annotations

from typing import Final

_VISIBLE: Final = (*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_HIDDEN: Final = tuple(byte for byte in range(0x100) if byte not in _VISIBLE)

CHAR_OF: Final = {
    **{byte: chr(byte) for byte in _VISIBLE},
    **{byte: chr(0x100 + i) for i, byte in enumerate(_HIDDEN)},
}
BYTE_OF: Final = {char: byte for byte, char in CHAR_OF.items()}


def visible(data: bytes) -> str:
    """Return bytes as the characters that stand for them in a vocabulary."""
    return "".join(CHAR_OF[byte] for byte in data)
