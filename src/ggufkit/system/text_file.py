"""Text files of users: UTF-8, or what Windows' editors and shells write.

PowerShell's `>` writes UTF-16, and Notepad puts a byte order mark before UTF-8. With either, the
first word of a list would match nothing.
"""

from __future__ import annotations

import codecs
import io
from pathlib import Path
from typing import Final

# The mark of UTF-32 begins with that of UTF-16, so it comes first.
_MARKS: Final = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_LONGEST: Final = max(map(len, _MARKS))


def encoding_of(head: bytes) -> str:
    """Return the encoding that the first bytes of a text tell; UTF-8 where they tell none."""
    return next((name for mark, name in _MARKS.items() if head.startswith(mark)), "utf-8")


def decoded(raw: bytes) -> str:
    """Return a text without its byte order mark; raises UnicodeDecodeError for other bytes."""
    return raw.decode(encoding_of(raw))


def open_text(path: Path) -> io.TextIOWrapper:
    """Open a text file for reading line by line; bytes that are no text become surrogates."""
    file = path.open("rb")
    encoding = encoding_of(file.peek(_LONGEST)[:_LONGEST])
    errors = "surrogateescape" if encoding.startswith("utf-8") else "replace"
    return io.TextIOWrapper(file, encoding=encoding, errors=errors)
