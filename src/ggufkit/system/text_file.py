"""Read text files of users: UTF-8, or the encodings that Windows' editors and shells write.

PowerShell's `>` writes UTF-16, and Notepad puts a byte order mark before UTF-8. With either, the
first word of a list would match nothing.
"""

from __future__ import annotations

import codecs
import io
from enum import IntEnum
from pathlib import Path
from typing import IO, Final

from ggufkit.errors import FormatError

# The mark of UTF-32 begins with that of UTF-16, so it comes first.
_MARKS: Final = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_LONGEST: Final = max(map(len, _MARKS))


class Most(IntEnum):
    """The most bytes that a small file of each kind may have.

    Without limits, a sparse file of gigabytes would be read into memory.
    """

    POINTER = 1 << 12  # one path or digest
    CACHE_MANIFEST = 1 << 20  # Ollama's have a kilobyte
    RECIPE = 1 << 20  # patterns and types
    ARCHITECTURE = 1 << 20  # ours have a few kilobytes
    VALUES = 64 << 20  # JSON or text that becomes the values of keys; large vocabularies have 10 MB
    CALIBRATION = 1 << 30  # text for an importance matrix; a few megabytes are usual


def read_small(path: Path, most: Most) -> bytes:
    """Return the content of a file; FormatError if it has more than `most` bytes."""
    with path.open("rb") as file:
        return read_stream(file, most, str(path))


def read_stream(stream: IO[bytes], most: Most, name: str) -> bytes:
    """Return the content of a stream; FormatError if it has more than `most` bytes."""
    data = stream.read(most + 1)
    if len(data) > most:
        raise FormatError(
            f"the file has more than {most:,} bytes",
            remedy="Check that you named the right file",
            path=name,
        )
    return data


def encoding_of(head: bytes) -> str:
    """Return the encoding by the byte order mark of a text; UTF-8 without a mark."""
    return next((name for mark, name in _MARKS.items() if head.startswith(mark)), "utf-8")


def decoded(raw: bytes) -> str:
    """Return a text without its byte order mark; raises UnicodeDecodeError for other bytes."""
    return raw.decode(encoding_of(raw))


def open_text(path: Path) -> io.TextIOWrapper:
    """Open a text file for reading line by line; invalid bytes become surrogates."""
    file = path.open("rb")
    encoding = encoding_of(file.peek(_LONGEST)[:_LONGEST])
    errors = "surrogateescape" if encoding.startswith("utf-8") else "replace"
    return io.TextIOWrapper(file, encoding=encoding, errors=errors)
