"""Base files of llama-perplexity: the log probabilities of a model at each counted position.

A file has `_logits_`, the context, the vocabulary's size and the number of chunks as 32-bit
integers, all tokens, and for each counted position a scale, a minimum and 16-bit codes.
"""

from __future__ import annotations

import contextlib
import os
import struct
import tempfile
from pathlib import Path
from typing import IO, Final

import numpy as np
import numpy.typing as npt

from ggufkit.errors import FormatError, NotGGUFError, TruncatedError
from ggufkit.evaluation.log_probabilities import HEAD, LogitCodes, decode, units
from ggufkit.evaluation.scores import counted
from ggufkit.quants.parallel import Floats
from ggufkit.system.descriptors import ShortReadError, naming, read_at, write_at
from ggufkit.system.staging import require_space

TokenChunks = npt.NDArray[np.int32]
MAGIC: Final = b"_logits_"
HEADER: Final = struct.Struct("<8sIii")
MOST_CONTEXT: Final = 1 << 24  # tokens, far beyond any model
LEAST_CONTEXT: Final = 8  # tokens: of a chunk this short, three positions are measured
MOST_VOCABULARY: Final = 1 << 24
MOST_TOKENS: Final = 1 << 26  # of a file: log probabilities of more take terabytes
TOKEN_BYTES: Final = 4
CODE_BYTES: Final = 2
REMEDY: Final = "Write the base file again"
MORE_SPACE: Final = "Read fewer chunks, or name a file on another disk (base_logits=...)"
WRITE: Final = "Write one: `ggufkit eval --base MODEL --text FILE --base-logits OUT`"


class BaseFile:
    """A base file by its descriptor, read or written by position."""

    def __init__(self, name: str, descriptor: int, tokens: TokenChunks, vocabulary: int) -> None:
        """Take an open file and its name or folder; `tokens` has the shape (chunks, context)."""
        self.name = name
        self.tokens = tokens
        self.vocabulary = vocabulary
        self._descriptor = descriptor
        self._row_bytes = units(vocabulary) * CODE_BYTES
        self._start = HEADER.size + tokens.size * TOKEN_BYTES

    @property
    def context(self) -> int:
        """The tokens of a chunk."""
        return int(self.tokens.shape[1])

    @property
    def header(self) -> bytes:
        """The bytes before the log probabilities."""
        chunks, context = self.tokens.shape
        packed = HEADER.pack(MAGIC, context, self.vocabulary, chunks)
        return packed + self.tokens.astype("<i4").tobytes()

    @property
    def nbytes(self) -> int:
        """The size of the whole file."""
        return self._offset_of(len(self.tokens), 0)

    def begin(self) -> None:
        """Write the header and the tokens."""
        write_at(self._descriptor, self.header, 0)

    def is_begun(self) -> bool:
        """Whether the file on disk begins with this header and these tokens."""
        try:
            return read_at(self._descriptor, len(self.header), 0) == self.header
        except ShortReadError:
            return False

    def complete_chunks(self, nbytes: int) -> int:
        """Return how many whole chunks a file of `nbytes` bytes has."""
        return max(nbytes - self._offset_of(0, 0), 0) // (self._row_bytes * counted(self.context))

    def log_probabilities(self, chunk: int, position: int) -> Floats:
        """Return the log probabilities at a counted position."""
        row = read_at(self._descriptor, self._row_bytes, self._offset_of(chunk, position))
        codes = np.frombuffer(row, "<u2")
        if not np.isfinite(codes[:HEAD].view("<f4")).all():
            raise FormatError(
                f"the scale of chunk {chunk + 1}, position {position + 1} is not a number",
                remedy=REMEDY,
                path=self.name,
            )
        return decode(codes, self.vocabulary)

    def put(self, chunk: int, position: int, codes: LogitCodes) -> None:
        """Write the codes of a counted position."""
        data = codes.astype("<u2", copy=False).tobytes()
        with naming(Path(self.name)):
            write_at(self._descriptor, data, self._offset_of(chunk, position))

    def _offset_of(self, chunk: int, position: int) -> int:
        return self._start + (chunk * counted(self.context) + position) * self._row_bytes


def temporary_base(tokens: TokenChunks, vocabulary: int, opened: contextlib.ExitStack) -> BaseFile:
    """Return a base without a header in a file without a name; DiskSpaceError if it cannot fit."""
    file = opened.enter_context(tempfile.TemporaryFile(prefix="ggufkit-"))  # noqa: SIM115 (`opened` closes it)
    folder = tempfile.gettempdir()
    base = BaseFile(folder, file.fileno(), tokens, vocabulary)
    require_space(Path(folder), base.nbytes, MORE_SPACE)
    return base


def open_base(path: Path, file: IO[bytes], chunks: int | None = None) -> BaseFile:
    """Open a base file for at most `chunks` of its chunks; FormatError for one that is damaged."""
    nbytes = os.fstat(file.fileno()).st_size
    head = file.read(HEADER.size)
    if not head.startswith(MAGIC):
        raise NotGGUFError(
            "this is not a base file of llama-perplexity", remedy=WRITE, path=str(path)
        )
    if len(head) < HEADER.size:
        raise _cut("the header ends early", path)
    _, context, vocabulary, available = HEADER.unpack(head)
    sound = (
        LEAST_CONTEXT <= context <= MOST_CONTEXT and 0 < vocabulary <= MOST_VOCABULARY
    ) and 0 < available * context <= MOST_TOKENS
    if not sound:
        raise FormatError(
            f"the header is wrong: chunks {available}, context {context}, vocabulary {vocabulary}",
            remedy=REMEDY,
            path=str(path),
        )
    token_bytes = context * available * TOKEN_BYTES
    if HEADER.size + token_bytes > nbytes:
        raise _cut("the tokens end early", path)
    tokens = np.frombuffer(file.read(token_bytes), "<i4").astype(np.int32, copy=False)
    tokens = tokens.reshape(available, context)
    if not 0 <= tokens.min() <= tokens.max() < vocabulary:
        raise FormatError(
            f"a token is outside of the vocabulary of {vocabulary:,}", remedy=REMEDY, path=str(path)
        )
    whole = BaseFile(str(path), file.fileno(), tokens, vocabulary)
    limit = available if chunks is None else min(chunks, available)
    complete = whole.complete_chunks(nbytes)
    if complete < limit:
        raise _cut(f"only {complete} of {available} chunks are complete", path, complete)
    whole.tokens = tokens[:limit]
    return whole


def _cut(what: str, path: Path, complete: int = 0) -> TruncatedError:
    remedy = REMEDY + (f", or read only the first chunks, {complete} at most" if complete else "")
    return TruncatedError(what, remedy=remedy, path=str(path))
