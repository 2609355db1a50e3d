"""Decodes the text of a single token by a tokenizer's decoder."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from ggufkit.conversion.tokenizer.byte_alphabet import BYTE_OF

DecoderRule = Mapping[str, Any]

_BYTE_TOKEN: Final = re.compile(r"<0x([0-9A-Fa-f]{2})>")
# Spaces that transformers' clean-up of English removes.
_GLUED: Final = ((" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"))
_GLUED_SHORT: Final = ((" 'm", "'m"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re"))


def decode(token: str, decoder: DecoderRule | None, *, cleans: bool) -> str:
    """Return the decoded text of `token` alone."""
    text = _decoded(token, decoder or {})
    if cleans:
        for apart, together in (*_GLUED, *_GLUED_SHORT):
            text = text.replace(apart, together)
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
    found = _BYTE_TOKEN.fullmatch(token)
    return bytes([int(found[1], 16)]).decode(errors="replace") if found else token


def _replaced(token: str, decoder: DecoderRule) -> str:
    return token.replace(_literal(decoder.get("pattern")), decoder.get("content", ""))


def _literal(pattern: object) -> str:
    """Return the text that a Replace searches for; skip regular expressions."""
    found = pattern.get("String") if isinstance(pattern, dict) else None
    return found if isinstance(found, str) and found else "\0"


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
