"""Reads headers of files from before GGUF: their kind, the model's sizes, the vocabulary."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final

from ggufkit.errors import FormatError, NotGGUFError
from ggufkit.system.mapped_file import MappedFile

# Magic bytes, the kind of file that each marks, and the versions of that kind.
MAGICS: Final = {b"lmgg": "GGML", b"fmgg": "GGMF", b"tjgg": "GGJT"}
VERSIONS: Final[dict[str, tuple[int, ...]]] = {"GGMF": (1,), "GGJT": (1, 2, 3)}
MAX_TOKENS: Final = 1 << 20  # thirty times LLaMA's; more must be a damaged file
MAX_TOKEN_BYTES: Final = 4096  # the limit of llama.cpp's own converter
MAX_LAYERS: Final = 512  # llama.cpp's LLAMA_MAX_LAYERS
WINDOW_BYTES: Final = 1 << 16  # of one read, because tokens are many and small


@dataclass(frozen=True)
class LegacyHeader:
    """The header of a file: its kind, and the model's sizes."""

    kind: str
    version: int
    tokens: int
    width: int
    heads: int
    layers: int
    rotated: int
    file_type: int = field(default=0, compare=False)  # the recipe, as a number

    @property
    def is_versioned(self) -> bool:
        """Whether the kind of file has a version; then its tokens have scores."""
        return self.kind in VERSIONS

    @property
    def blocks(self) -> int:
        """The version of the block layout: GGJT's version, 0 for older files."""
        return self.version if self.kind == "GGJT" else 0


VERSION_FACTOR: Final = 1000  # the recipe's number is this times the blocks' version, plus it


class LegacyReader:
    """Reads a file from front to back, never beyond its end."""

    def __init__(self, file: MappedFile) -> None:
        self.file = file
        self.position: int = 0
        self._window = b""
        self._start = 0

    def take(self, nbytes: int, what: str) -> bytes:
        """Return the next bytes; FormatError if the file ends before."""
        if nbytes > self.file.nbytes - self.position:
            raise self.wrong(f"the file ends in {what}: {nbytes} bytes are missing or cut")
        offset = self.position - self._start
        if not 0 <= offset <= len(self._window) - nbytes:
            ahead = min(max(nbytes, WINDOW_BYTES), self.file.nbytes - self.position)
            self._window = self.file.read(self.position, ahead).tobytes()
            self._start = self.position
            offset = 0
        self.position += nbytes
        return self._window[offset : offset + nbytes]

    def skip(self, nbytes: int) -> None:
        """Skip the next bytes, possibly to beyond the end."""
        self.position += nbytes

    def numbers(self, count: int, what: str) -> tuple[int, ...]:
        """Return the next unsigned 32-bit numbers."""
        return struct.unpack(f"<{count}I", self.take(4 * count, what))

    def wrong(self, what: str) -> FormatError:
        """Return an error with the current offset."""
        return FormatError(
            what,
            remedy="The file is damaged or of another family: download it again, or get the model "
            "as GGUF",
            offset=self.position,
            path=str(self.file.path),
        )


def read_header(reader: LegacyReader) -> LegacyHeader:
    """Read magic, version and sizes; NotGGUFError for a file of another kind."""
    magic = reader.take(min(4, reader.file.nbytes), "its magic")
    kind = MAGICS.get(magic)
    if kind is None:
        raise NotGGUFError(
            f"{magic!r} is not the start of a GGML, GGMF or GGJT file",
            remedy="A GGUF file needs no conversion" if magic == b"GGUF" else "",
            path=str(reader.file.path),
        )
    version = reader.numbers(1, "its version")[0] if kind in VERSIONS else 0
    if version not in VERSIONS.get(kind, (0,)):
        raise reader.wrong(f"version {version} never existed for {kind}")
    tokens, width, _, heads, layers, rotated, file_type = reader.numbers(7, "the model's sizes")
    for what, number, limit in (("tokens", tokens, MAX_TOKENS), ("layers", layers, MAX_LAYERS)):
        if not 0 < number <= limit:
            raise reader.wrong(f"{number} {what} exceed the limit of {limit}")
    if not heads or width % heads or width // heads != rotated:
        raise reader.wrong(f"{heads} heads of {rotated} elements do not make a width of {width}")
    return LegacyHeader(
        kind, version, tokens, width, heads, layers, rotated, file_type % VERSION_FACTOR
    )


def read_vocabulary(reader: LegacyReader, header: LegacyHeader) -> tuple[list[bytes], list[float]]:
    """Read the bytes of all tokens and their scores, 0 if the file has none."""
    texts: list[bytes] = []
    scores: list[float] = []
    for number in range(header.tokens):
        (nbytes,) = reader.numbers(1, f"token {number}")
        if nbytes > MAX_TOKEN_BYTES:
            raise reader.wrong(f"token {number} of {nbytes} bytes exceeds {MAX_TOKEN_BYTES}")
        texts.append(reader.take(nbytes, f"token {number}"))
        score = reader.take(4, f"token {number}") if header.is_versioned else bytes(4)
        scores.append(struct.unpack("<f", score)[0])
    return texts, scores
