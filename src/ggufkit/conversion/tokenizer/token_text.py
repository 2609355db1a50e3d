"""Decodes the text of a single token; spells bytes as GPT-2's visible characters."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

DecoderRule = Mapping[str, Any]
_VISIBLE: Final = (*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_HIDDEN: Final = tuple(byte for byte in range(0x100) if byte not in _VISIBLE)

CHAR_OF: Final = {
    **{byte: chr(byte) for byte in _VISIBLE},
    **{byte: chr(0x100 + i) for i, byte in enumerate(_HIDDEN)},
}
BYTE_OF: Final = {char: byte for byte, char in CHAR_OF.items()}

BYTE_TOKEN: Final = re.compile(r"<0x([0-9A-Fa-f]{2})>")
# Spaces that transformers' clean-up of English removes.
_GLUED: Final = (
    *((" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't")),
    *((" 'm", "'m"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re")),
)


def visible(data: bytes) -> str:
    """Return bytes as the characters that mean them in a vocabulary."""
    return "".join(CHAR_OF[byte] for byte in data)


def decode(token: str, decoder: DecoderRule | None, *, cleans: bool) -> str:
    """Return the decoded text of `token` alone."""
    text = _decoded(token, decoder or {})
    if cleans:
        for split, joined in _GLUED:
            text = text.replace(split, joined)
    return text


def _decoded(token: str, decoder: DecoderRule) -> str:
    for part in decoder.get("decoders") or []:
        token = _decoded(token, part)
    change = _DECODERS.get(str(decoder.get("type")))
    return change(token, decoder) if change else token


def _byte_level(token: str, _: DecoderRule) -> str:
    if any(char not in BYTE_OF for char in token):
        return token
    return bytes(BYTE_OF[char] for char in token).decode(errors="replace")


def _byte_fallback(token: str, _: DecoderRule) -> str:
    match = BYTE_TOKEN.fullmatch(token)
    return bytes([int(match[1], 16)]).decode(errors="replace") if match else token


def _replaced(token: str, decoder: DecoderRule) -> str:
    pattern = decoder.get("pattern")
    text = pattern.get("String") if isinstance(pattern, dict) else None
    if isinstance(text, str) and text:
        return token.replace(text, decoder.get("content", ""))
    return token


def _stripped(token: str, decoder: DecoderRule) -> str:
    char, start, stop = decoder.get("content", " "), decoder.get("start", 0), decoder.get("stop", 0)
    leading = len(token) - len(token.lstrip(char))
    token = token[min(leading, start) :]
    trailing = len(token) - len(token.rstrip(char))
    return token[: len(token) - min(trailing, stop)]


def _spaced(token: str, decoder: DecoderRule) -> str:
    mark = decoder.get("replacement", "▁")
    if decoder.get("prepend_scheme", "always") != "never" and token.startswith(mark):
        token = token[len(mark) :]
    return token.replace(mark, " ")


_DECODERS: Final[Mapping[str, Callable[[str, DecoderRule], str]]] = {
    "ByteLevel": _byte_level,
    "ByteFallback": _byte_fallback,
    "Replace": _replaced,
    "Strip": _stripped,
    "Metaspace": _spaced,
}
