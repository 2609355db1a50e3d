"""The `.dat` form of importance matrices: bytes from and to means that count chunks."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ggufkit.errors import FormatError, TruncatedError
from ggufkit.system.mapped_file import Data

MAX_INT32: Final = 2**31 - 1
MAX_LEGACY_NAME: Final = 4096  # bytes: longer than any real name


class DatEntry(NamedTuple):
    """Means of squared activations times the number of chunks, `calls`; float32, (width,)."""

    values: npt.NDArray[np.float32]
    calls: int


class DatFile(NamedTuple):
    """The content of a file; `dataset` is empty if the file names none."""

    entries: dict[str, DatEntry]
    chunk_count: int
    dataset: str


def as_bytes(text: str) -> bytes:
    """Return the bytes of `text`: llama.cpp sorts names by their bytes."""
    return text.encode("utf-8", "surrogateescape")


class _DatReader:
    """Reads a legacy file front to back, and checks every length before use."""

    def __init__(self, data: Data, path: str) -> None:
        self.data = data
        self.path = path
        self.at = 0

    def int32(self) -> int:
        number: int = struct.unpack("<i", self.take(4, "a number"))[0]
        return number

    def take(self, nbytes: int, what: str) -> bytes:
        if nbytes > len(self.data) - self.at:
            raise TruncatedError(
                f"the file ends within {what}",
                remedy="It is cut short or not an importance matrix",
                offset=self.at,
                path=self.path,
            )
        self.at += nbytes
        return bytes(self.data[self.at - nbytes : self.at])

    def text(self, nbytes: int, what: str) -> str:
        start = self.at
        try:
            return self.take(nbytes, what).decode()
        except UnicodeDecodeError:
            raise self.wrong(f"{what} is not UTF-8", start) from None

    def wrong(self, message: str, offset: int) -> FormatError:
        remedy = "It is damaged or not an importance matrix"
        return FormatError(message, remedy=remedy, offset=offset, path=self.path)


def read_legacy(data: Data, path: str) -> DatFile:
    """Read a file; FormatError, which names `path`, if it is cut, damaged or another format."""
    reader = _DatReader(data, path)
    count = reader.int32()
    if count < 1:
        raise reader.wrong(f"there cannot be {count} entries", 0)
    entries = dict(_entry(reader) for _ in range(count))
    chunk_count = reader.int32() if reader.at < len(data) else 0
    size = reader.int32() if reader.at < len(data) else 0
    dataset = reader.text(size, "the name of the dataset") if size > 0 else ""
    return DatFile(entries, max(chunk_count, 0), dataset)


def _entry(reader: _DatReader) -> tuple[str, DatEntry]:
    start = reader.at
    size = reader.int32()
    if not 0 < size <= MAX_LEGACY_NAME:
        raise reader.wrong(f"a name of {size} bytes is impossible", start)
    name = reader.text(size, "a name")
    calls, width = reader.int32(), reader.int32()
    if calls < 0 or width < 1:
        raise reader.wrong(f"{name!r} cannot have {width} values of {calls} chunks", reader.at - 8)
    values = np.frombuffer(reader.take(4 * width, f"the values of {name!r}"), "<f4")
    return name, DatEntry(values.astype(np.float32, copy=False), calls)


def legacy_bytes(file: DatFile) -> bytes:
    """Return the bytes of a file with its entries in order."""
    parts = [struct.pack("<i", len(file.entries))]
    for name, (values, calls) in file.entries.items():
        encoded = as_bytes(name)
        parts += (struct.pack("<i", len(encoded)), encoded)
        parts += (struct.pack("<ii", calls, len(values)), values.astype("<f4").tobytes())
    dataset = as_bytes(file.dataset)
    parts.append(struct.pack("<ii", file.chunk_count, len(dataset)) + dataset)
    return b"".join(parts)
