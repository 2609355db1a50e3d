"""Make a tokenizer of Hugging Face's library from the keys of a model, in memory."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from ggufkit.conversion.tokenizer.keys import VocabularyKeys
from ggufkit.conversion.tokenizer.tokenizer_json import MODELS
from ggufkit.errors import MAX_PROBLEM, CheckpointError, GGUFError, shortened
from ggufkit.frameworks.extras import library
from ggufkit.frameworks.llama_tokens import as_in_llama_cpp
from ggufkit.models.any_model import AnyModel, opened
from ggufkit.system.threads import Notify

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MAX_TOKENS: Final = 1 << 20  # the largest vocabularies have 262,144


def tokenizer(model: AnyModel, *, say: Notify | None = None) -> Tokenizer:
    """Return a `tokenizers.Tokenizer` that gives the ids that llama.cpp gives.

    `encode(text)` adds the tokens that llama.cpp adds; `add_special_tokens=False` leaves them out.
    Special tokens within a text are recognized. `say` is called with each part that cannot be
    rebuilt exactly. Raises CheckpointError for a model without a vocabulary, or with a kind of
    tokenizer that Hugging Face's library lacks.
    """
    kind = library("tokenizers", "tokenizers").Tokenizer
    with opened(model) as source:
        keys = VocabularyKeys(source.metadata)
        if keys.model not in MODELS:
            raise CheckpointError(
                f"Hugging Face's library has no tokenizer of the kind {keys.model!r}",
                remedy=f"ggufkit can rebuild {', '.join(MODELS)}",
            )
        if len(keys.texts) > MAX_TOKENS:
            raise CheckpointError(
                f"the vocabulary has {len(keys.texts):,} tokens, more than {MAX_TOKENS:,}",
                remedy="`ggufkit check` lists what is wrong with a vocabulary",
            )
        require_charsmap(bytes(keys.get("precompiled_charsmap") or []))
        rules = MODELS[keys.model](keys, say or (lambda _: None))
        text = json.dumps(as_in_llama_cpp(rules, keys), ensure_ascii=False, separators=(",", ":"))
    with errors_of_library():
        result: Tokenizer = kind.from_str(text)
        return result


@contextlib.contextmanager
def errors_of_library(
    problem: str = "the tokens and merges of the file do not fit together",
) -> Iterator[None]:
    """Turn what a library of Hugging Face raises, also a panic, into CheckpointError."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GGUFError):
        raise
    except BaseException as error:  # a panic of Rust is not an Exception
        raise CheckpointError(
            f"{problem}: {shortened(str(error), MAX_PROBLEM)}",
            remedy="`ggufkit check` lists what is wrong with a file",
        ) from error


MAX_REPLACEMENT: Final = 1024  # bytes for one character; Unicode's longest has 33
_UNIT_BYTES: Final = 4
_BLOCK: Final = 256  # units that one byte chooses from
_VALUE: Final = 1 << 31  # marks a unit that is a value
_HAS_LEAF: Final = 1 << 8
_CONTINUED, _CONTINUATION = 0xC0, 0x80  # the bits of a byte within a character, and their values

Units = npt.NDArray[np.int64]


def require_charsmap(data: bytes) -> None:
    """Raise CheckpointError for a `precompiled_charsmap` that is damaged; it may be empty.

    It is the size of a trie, the trie (a double array of 32-bit units), and replacements that each
    end with a zero byte. Hugging Face's library does not check it: a unit that points out of the
    array, or a replacement that begins within a character, would end its thread by a panic.
    """
    if data and (fault := _fault(data)):
        raise CheckpointError(
            f"the precompiled_charsmap of this vocabulary is damaged: {fault}",
            remedy="Convert the model again",
        )


def _fault(data: bytes) -> str:
    """Return what is wrong with a map, empty if it is sound."""
    size = int.from_bytes(data[:_UNIT_BYTES], "little")
    start, end = _UNIT_BYTES, _UNIT_BYTES + size
    if size < _UNIT_BYTES or size % _UNIT_BYTES or end > len(data):
        return f"its trie cannot have {size:,} bytes"
    units: Units = np.frombuffer(data[start:end], "<u4").astype(np.int64)
    replacements = data[end:]
    try:
        replacements.decode()
    except UnicodeDecodeError:
        return "its replacements are not UTF-8"
    if max(map(len, replacements.split(b"\0"))) > MAX_REPLACEMENT:
        return f"a replacement has more than {MAX_REPLACEMENT:,} bytes"
    inner = np.flatnonzero(units < _VALUE)
    shifts = (units[inner] & (1 << 9)) >> 6
    reached = inner ^ (units[inner] >> 10 << shifts)
    if not len(inner) or inner[0] or (reached | (_BLOCK - 1)).max() >= len(units):
        return "a unit of its trie points out of it"
    starts = np.append(np.frombuffer(replacements, np.uint8) & _CONTINUED != _CONTINUATION, True)
    values = units[reached[(units[inner] & _HAS_LEAF) > 0]] & (_VALUE - 1)
    if (values >= len(starts)).any() or not starts[values].all():
        return "a value of its trie is not where a replacement begins"
    return ""
