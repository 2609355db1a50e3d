"""The header of a file that is read by ranges, in few requests and with few bytes too many.

A header is a chain, so its end is known only at its end. But the parser says how many bytes it
still needs at least, and from what came one can guess the rest well: the strings of an array are
about as long as those before, and the arrays of a vocabulary come in a known order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

import ggufkit._native as _native
from ggufkit.errors import LimitError
from ggufkit.format.header import KEY_RECORD, Header, parse
from ggufkit.format.types import MAX_KEY_BYTES
from ggufkit.remote.limits import FIRST_BYTES, MAX_HEADER_BYTES
from ggufkit.remote.range_file import RangeFile

KEY_BYTES: Final = 48  # of a usual key with a number or a short string
TENSOR_BYTES: Final = 80  # of a usual tensor info
TEMPLATE_BYTES: Final = 1 << 14  # of a chat template, which most models have after the vocabulary
SPARE: Final = 1.08  # of strings that have not come: later tokens are longer than the first ones
SPARE_OF_ALL: Final = 1.01
SPARE_BYTES: Final = 1 << 15  # so that three requests are usually enough
TOKEN_BYTES: Final = 15  # of a usual token and its length
SURE_STRINGS: Final = 1 << 14  # after which the mean so far says more than what is usual
COUNT_BYTES: Final = 8  # of the length of a string; in the rare version 1 this guesses worse
NUMBER_BYTES: Final = 4  # of a token's score, and of its type
MAP_BYTES: Final = 240_000  # of the character map that T5 and its likes have
MAPPED: Final = (b"t5",)
MERGED: Final = (b"gpt2", b"gemma4")  # the kinds of vocabularies that have merges
_TOKENS: Final = b"tokenizer.ggml.tokens"
_MERGES: Final = b"tokenizer.ggml.merges"
_KIND: Final = b"tokenizer.ggml.model"
_SCORES: Final = b"tokenizer.ggml.scores"
_TYPES: Final = b"tokenizer.ggml.token_type"
_MAP: Final = b"tokenizer.ggml.precompiled_charsmap"


@dataclass(frozen=True)
class HeaderLack:
    """What the beginning of a file lacks of its header.

    Its bytes before `least` are needed at least. The key at `key_at` is the first that is not
    whole; `keys` and `tensors` are those not whole. In an array of `count` strings from `array_at`
    on, `index` are whole.
    """

    least: int
    key_at: int
    keys: int
    tensors: int
    array_at: int
    index: int
    count: int


def read_header(file: RangeFile) -> Header:
    """Return the header of a file; nothing of it may have been read yet.

    Raises LimitError for a header that is longer than MAX_HEADER_BYTES.
    """
    if file.nbytes and not file.data:  # asking a server for the size brings the beginning too
        file.load(FIRST_BYTES)
    while len(file.data) < file.nbytes:
        lack = _native.lack(file.data, file.nbytes)
        if lack is None:
            break
        needed = expected_bytes(file.data, HeaderLack(*lack))
        if min(needed, file.nbytes) > MAX_HEADER_BYTES:
            raise LimitError(
                f"the header needs {HeaderLack(*lack).least:,} bytes at least, more than the "
                f"{MAX_HEADER_BYTES:,} that are fetched",
                remedy="Download the file to open it",
                path=str(file.path),
            )
        file.load(needed)
    return parse(file.data, file.nbytes)


def expected_bytes(data: bytes, lack: HeaderLack) -> int:
    """Return how many bytes the header probably has: at least what it needs, and more than now."""
    vocabulary = KnownVocabulary.of(data, lack)
    end = max(lack.least, len(data))
    if lack.count:
        usual = vocabulary.token_bytes + 1 if vocabulary.last == _MERGES else vocabulary.token_bytes
        came = len(data) - lack.array_at
        mean = (came + usual * SURE_STRINGS) / (lack.index + SURE_STRINGS)
        end = max(end, len(data) + int((lack.count - lack.index) * mean * SPARE))
    if vocabulary.last == _TOKENS:
        vocabulary = replace(vocabulary, tokens=lack.count, nbytes=end - lack.array_at)
    if lack.keys:
        end += vocabulary.rest() + TEMPLATE_BYTES + (lack.keys - 1) * KEY_BYTES
    return int(end * SPARE_OF_ALL) + lack.tensors * TENSOR_BYTES + SPARE_BYTES


@dataclass(frozen=True)
class KnownVocabulary:
    """What the beginning of a header tells of its vocabulary.

    `kind` is tokenizer.ggml.model, `keys` the names so far and `last` the one that is not whole.
    """

    kind: bytes = b""
    tokens: int = 0
    nbytes: int = 0
    keys: frozenset[bytes] = frozenset()
    last: bytes = b""

    @classmethod
    def of(cls, data: bytes, lack: HeaderLack) -> KnownVocabulary:
        """Read the whole keys, and the name of the one that is not."""
        vocabulary = cls()
        names = set()
        table = np.frombuffer(_native.scan(data, lack.least)[5], KEY_RECORD)
        for key_at, size, _, _, count, value_at, end in table.tolist():
            names.add(key := data[key_at : key_at + size])
            if key == _KIND:
                vocabulary = replace(vocabulary, kind=data[value_at + COUNT_BYTES : end])
            elif key == _TOKENS:
                vocabulary = replace(vocabulary, tokens=count, nbytes=end - value_at)
        size = int.from_bytes(data[lack.key_at : lack.key_at + COUNT_BYTES], "little")
        last = data[lack.key_at + COUNT_BYTES :][: min(size, MAX_KEY_BYTES)]
        return replace(vocabulary, keys=frozenset(names | {last}), last=last)

    @property
    def token_bytes(self) -> float:
        """The bytes of a usual token and its length."""
        return self.nbytes / self.tokens if self.tokens else TOKEN_BYTES

    def rest(self) -> int:
        """Return the bytes of the arrays that are expected after those seen."""
        # A merge is a token with a space in it, and nearly every token has one.
        has_merges = self.kind in MERGED
        sizes = {
            _SCORES: 0 if has_merges else self.tokens * NUMBER_BYTES,
            _TYPES: self.tokens * NUMBER_BYTES,
            _MERGES: self.nbytes + self.tokens if has_merges else 0,
            _MAP: MAP_BYTES if self.kind in MAPPED else 0,
        }
        return sum(size for key, size in sizes.items() if key not in self.keys)
