r"""Translates regular expressions of tokenizers to Python's, for one text.

Tokenizers use Oniguruma, and Python lacks its `\p{L}`. Since the text is known, a class becomes the
list of the text's characters that belong to it.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_PROPERTY: Final = re.compile(r"\\([pP])\{(\^?)(\w+)\}")
_HEX: Final = re.compile(r"\\[xu]\{([0-9A-Fa-f]{1,6})\}")
_HAN: Final = "CJK UNIFIED IDEOGRAPH"
_SCRIPTS: Final = {"Han": _HAN, "Hiragana": "HIRAGANA", "Katakana": "KATAKANA", "Hangul": "HANGUL"}
_CATEGORIES: Final = frozenset(["L", "M", "N", "P", "S", "Z", "C"]) | {
    *("Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe"),
    *("Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"),
}
_OPEN: Final = "[^"
_NONE: Final = "\U0010ffff"  # stands for no character: Python does not allow an empty class


class UntranslatableError(ValueError):
    """A rule of a tokenizer that is unknown here."""


def compiled(pattern: str, text: str) -> re.Pattern[str]:
    """Return an expression that matches in `text` the same as `pattern`."""
    try:
        return re.compile(_translated(pattern, "".join(sorted({*text}))), re.MULTILINE)
    except re.error as error:
        raise UntranslatableError(f"the expression {pattern!r}: {error}") from None


def members(name: str, alphabet: str) -> str:
    """Return the characters of `alphabet` that have a Unicode property."""
    if name in _SCRIPTS:
        start = _SCRIPTS[name]
        return "".join(c for c in alphabet if unicodedata.name(c, "").startswith(start))
    if name not in _CATEGORIES:
        raise UntranslatableError(f"the property {name}")
    return "".join(c for c in alphabet if unicodedata.category(c).startswith(name))


def _translated(pattern: str, alphabet: str) -> str:
    parts: list[str] = []
    at = depth = 0
    while at < len(pattern):
        found = _PROPERTY.match(pattern, at) or _HEX.match(pattern, at)
        if found:
            parts.append(_characters(found, alphabet, inside=depth > 0))
            at = found.end()
            continue
        step = 2 if pattern[at] == "\\" else 1
        piece = pattern[at : at + step]
        if depth and (piece == "[" or pattern.startswith("&&", at)):
            raise UntranslatableError(f"a class within a class in {pattern!r}")
        if piece == "[":
            step = len(_OPEN) if pattern.startswith(_OPEN, at) else 1
            piece, depth = pattern[at : at + step], 1
        elif piece == "]":
            depth = 0
        parts.append(piece)
        at += step
    return "".join(parts)


def _characters(found: re.Match[str], alphabet: str, *, inside: bool) -> str:
    if found.re is _HEX:
        return re.escape(chr(int(found[1], 16)))
    chosen = members(found[3], alphabet)
    if (found[1] == "P") != bool(found[2]):
        chosen = "".join(c for c in alphabet if c not in chosen)
    escaped = re.escape(chosen or _NONE)
    return escaped if inside else f"[{escaped}]"
