"""Finds the name of a pre-tokenizer by its fingerprint, or else by how it splits a text.

llama.cpp knows pre-tokenizers by name. Its converter finds the name by a tokenizer's ids for one
probe text, and refuses an unknown tokenizer. This module compares an unknown tokenizer with the
rules of each name.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Final

import ggufkit._toml as _toml
from ggufkit.conversion.tokenizer.files import TokenizerFiles
from ggufkit.conversion.tokenizer.hub_tokenizer import HubTokenizer
from ggufkit.conversion.tokenizer.pre.pre_tokenize import (
    SplitRule,
    UntranslatableError,
    compiled,
    spans,
    words,
)
from ggufkit.conversion.tokenizer.token_text import BYTE_OF
from ggufkit.errors import brief
from ggufkit.validation.typed_values import integer

DEFAULT: Final = "default"
_MAX_WORD: Final = 100  # longer words are unknown to WordPiece
_MOST_AROUND: Final = 64  # ids that a template may add to a text

_TEXTS: Final = _toml.read(__file__, "probe.toml")
PROBE: Final[str] = _TEXTS["probe"]


@dataclass(frozen=True)
class PreTokenizer:
    """A name, the expressions that split a text one after the other, and other properties."""

    name: str
    patterns: tuple[str, ...]
    ignores_merges: bool = False
    cleans_spaces: bool = True
    byte_level: bool = True
    adds_bos: bool = False


@functools.cache
def pre_tokenizers() -> Mapping[str, PreTokenizer]:
    """Return all pre-tokenizers with known rules by their names; several names may share rules."""
    rows: dict[str, PreTokenizer] = {}
    for name, table in _toml.read(__file__, "pre_tokenizers.toml").items():
        like, names = table.pop("like", None), table.pop("names", ())
        patterns = tuple(table.pop("patterns", ()))
        row = replace(rows[like], **table) if like else PreTokenizer(name, patterns, **table)
        rows |= dict.fromkeys((name, *names), row)
    return rows


def distinct() -> list[PreTokenizer]:
    """Return the pre-tokenizers that a tokenizer is compared with, without further names."""
    return [row for name, row in pre_tokenizers().items() if name == row.name != DEFAULT]


@functools.cache
def names_by_hash() -> Mapping[str, str]:
    """Return the names that llama.cpp's converter knows, by the fingerprint of a tokenizer."""
    text = Path(__file__).with_name("pre_tokenizer_hashes.txt").read_text("utf-8")
    return dict(line.split() for line in text.splitlines() if not line.startswith("#"))


def pre_tokenizer_name(files: TokenizerFiles, tokenizer: HubTokenizer) -> str:
    """Return the name of a tokenizer's pre-tokenizer: as requested, as known, or the nearest.

    If the name is not certain, `files.say` gets the difference and the remedy.
    """
    if files.asked_pre is not None:
        if files.asked_pre not in {*names_by_hash().values(), *pre_tokenizers()}:
            files.say(
                f"ggufkit does not know the pre-tokenizer {files.asked_pre!r}: llama.cpp may "
                "refuse it"
            )
        return files.asked_pre
    try:
        name = names_by_hash().get(fingerprint(tokenizer))
    except UntranslatableError as error:
        files.say(f"the tokenizer has {error}, which is not understood: its fingerprint is unknown")
        name = None
    return name or _by_rules(files, tokenizer)


def rules_of_name(name: str) -> PreTokenizer | None:
    """Return the rules of the pre-tokenizer `name`, None if they are not known."""
    row = pre_tokenizers().get(name)
    return row if row and row.byte_level else None


def fingerprint(tokenizer: HubTokenizer) -> str:
    """Return the SHA-256 of the probe text's ids, printed as llama.cpp's converter prints them."""
    return hashlib.sha256(str(encode(tokenizer, PROBE)).encode()).hexdigest()


def _by_rules(files: TokenizerFiles, tokenizer: HubTokenizer) -> str:
    model = tokenizer.rules.get("model") or {}
    if model.get("type") == "WordPiece":
        return DEFAULT  # llama.cpp ignores the name for WordPiece
    text = PROBE + _TEXTS["supplement"]
    try:
        cuts = tokenizer_cuts(tokenizer.rules.get("pre_tokenizer") or {}, text)
    except UntranslatableError as error:
        files.say(f"the pre-tokenizer has {error}, which is not understood: {_OVERRIDE}")
        return DEFAULT
    rows = [row for row in distinct() if row.byte_level == is_byte_level(tokenizer.rules)]
    ignores, cleans = bool(model.get("ignore_merges")), tokenizer.cleans_spaces

    def distance(row: PreTokenizer) -> tuple[int, bool, bool]:
        differing = len(cuts ^ row_cuts(row, text))
        return differing, row.ignores_merges != ignores, row.cleans_spaces != cleans

    best = min(rows, key=distance)
    differing = sorted(cuts ^ row_cuts(best, text))
    if not differing:
        files.say(f"the pre-tokenizer is {best.name!r} by its rules; no known model uses it")
        return best.name
    own_words = _around(text, cuts, differing[0])
    other_words = _around(text, row_cuts(best, text), differing[0])
    files.say(
        f"no known pre-tokenizer splits text like this one; the nearest is {best.name!r}, "
        f"which has {other_words} where the tokenizer has {own_words} ({len(differing)} such "
        f"places in a text of {len(text)} characters): {_OVERRIDE}"
    )
    return best.name


_OVERRIDE: Final = "give the name (pre=...) if you know it"


def is_byte_level(rules: Mapping[str, Any]) -> bool:
    """Whether a tokenizer's vocabulary spells bytes as GPT-2's."""
    pre = rules.get("pre_tokenizer") or {}
    parts = [pre, *(pre.get("pretokenizers") or [])]
    return any(part.get("type") == "ByteLevel" for part in parts)


def tokenizer_cuts(rule: Mapping[str, Any], text: str) -> frozenset[int]:
    """Return the offsets in bytes at which a pre-tokenizer cuts `text`."""
    parts = [word for word, _ in words(text, _without_prefix(rule))]
    if all(char in BYTE_OF for word in parts for char in word):
        return frozenset(accumulate(map(len, parts)))
    return _cuts(word.replace("\u2581", " ") for word in parts)


def row_cuts(row: PreTokenizer, text: str) -> frozenset[int]:
    """Return the offsets in bytes at which a known pre-tokenizer cuts `text`."""
    words = [text]
    for pattern in row.patterns:
        expression = compiled(pattern, text)
        words = [part for word in words for part, _ in spans(word, expression) if part]
    return _cuts(words)


def _cuts(words: Iterable[str]) -> frozenset[int]:
    return frozenset(accumulate(len(word.encode()) for word in words))


def _without_prefix(rule: Mapping[str, Any]) -> dict[str, Any]:
    parts = rule.get("pretokenizers")
    if isinstance(parts, Sequence):
        return {**rule, "pretokenizers": [_without_prefix(part) for part in parts]}
    return {**rule, "add_prefix_space": False, "prepend_scheme": "never"}


def _around(text: str, cuts: frozenset[int], place: int) -> str:
    data = text.encode()
    start = max((cut for cut in cuts if cut < place), default=0)
    end = min((cut for cut in cuts if cut > place), default=len(data))
    marks = [start, *sorted(cut for cut in cuts if start < cut < end), end]
    words = (data[a:b].decode(errors="replace") for a, b in pairwise(marks))
    return " ".join(brief(word) for word in words)


# Encodes a text to token ids by the rules of a tokenizer.
def encode(tokenizer: HubTokenizer, text: str) -> list[int]:
    """Return the ids of a text, with the special tokens that the tokenizer adds.

    Raises UntranslatableError for a tokenizer with unknown rules.
    """
    ids: list[int] = []
    rules, added = tokenizer.rules, [asdict(token) for token in tokenizer.added.values()]
    settings = rules.get("model") or {}
    kind = settings.get("type") or ("BPE" if "merges" in settings else None)
    model_class = _MODELS.get(str(kind))
    if model_class is None:
        raise UntranslatableError(f"the model {kind}")
    model = model_class(tokenizer, settings)
    for word, is_added in words(text, rules.get("pre_tokenizer"), rules.get("normalizer"), added):
        ids += [tokenizer.numbers[word]] if is_added else model.encode(word)
    return _with_specials(tokenizer, ids)


class _PairModel:
    """BPE: joins the characters of a word pair by pair, in the order of the merges."""

    def __init__(self, tokenizer: HubTokenizer, model: SplitRule) -> None:
        self.numbers = tokenizer.vocabulary
        merges = enumerate(model.get("merges") or [])
        self.ranks: dict[tuple[str | None, ...], int] = {
            tuple(pair.split(" ", 1) if isinstance(pair, str) else pair): n for n, pair in merges
        }
        self.ignores_merges = bool(model.get("ignore_merges"))
        self.byte_fallback = bool(model.get("byte_fallback"))
        self.unknown = self.numbers.get(model.get("unk_token") or "")
        self.fuses = bool(model.get("fuse_unk"))
        if model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
            raise UntranslatableError("a BPE model with prefixes or suffixes")

    def encode(self, word: str) -> list[int]:
        if self.ignores_merges and word in self.numbers:
            return [self.numbers[word]]
        symbols = [*self._symbols(word)]
        while len(symbols) > 1:
            pairs = pairwise(symbols)
            ranked = [(self.ranks[pair], i) for i, pair in enumerate(pairs) if pair in self.ranks]
            if not ranked:
                break
            _, index = min(ranked)
            symbols[index : index + 2] = [f"{symbols[index]}{symbols[index + 1]}"]
        return [self.unknown if s is None else self.numbers[s] for s in symbols]  # type: ignore[misc]

    def _symbols(self, word: str) -> Iterator[str | None]:
        """Yield the characters that have a token, others as bytes or as unknown (None)."""
        was_unknown = False
        for char in word:
            as_bytes = [f"<0x{byte:02X}>" for byte in char.encode()]
            is_bytes = self.byte_fallback and all(text in self.numbers for text in as_bytes)
            is_unknown = char not in self.numbers and not is_bytes
            if not is_unknown:
                yield from [char] if char in self.numbers else as_bytes
            elif self.unknown is not None and not (was_unknown and self.fuses):
                yield None
            was_unknown = is_unknown


class _WordPieceModel:
    """WordPiece: takes the longest known beginning, then the longest known continuations."""

    def __init__(self, tokenizer: HubTokenizer, model: SplitRule) -> None:
        self.numbers = tokenizer.vocabulary
        self.prefix = str(model.get("continuing_subword_prefix", "##"))
        self.unknown = [self.numbers[str(model.get("unk_token", "[UNK]"))]]
        key = "max_input_chars_per_word"
        self.longest = integer(model.get(key, _MAX_WORD), key)

    def encode(self, word: str) -> list[int]:
        if len(word) > self.longest:
            return self.unknown
        ids, start = [], 0
        while start < len(word):
            prefix = self.prefix if start else ""
            ends = range(len(word), start, -1)
            end = next((end for end in ends if prefix + word[start:end] in self.numbers), None)
            if end is None:
                return self.unknown
            ids.append(self.numbers[prefix + word[start:end]])
            start = end
        return ids


_MODELS: Final[Mapping[str, type[_PairModel | _WordPieceModel]]] = {
    "BPE": _PairModel,
    "WordPiece": _WordPieceModel,
}


def _with_specials(tokenizer: HubTokenizer, ids: list[int]) -> list[int]:
    most = len(ids) + _MOST_AROUND
    processor = tokenizer.rules.get("post_processor") or {}
    for part in processor.get("processors", [processor]):
        kind = part.get("type")
        if kind in {"RobertaProcessing", "BertProcessing"}:
            ids = [part["cls"][1], *ids, part["sep"][1]]
        elif kind == "TemplateProcessing":
            filled = [_filled(tokenizer, part, piece, ids) for piece in part["single"]]
            ids = [number for numbers in filled for number in numbers]
        if len(ids) > most:  # several templates that each repeat the text
            raise UntranslatableError(
                "a post-processor that does more than add special tokens around a text"
            )
    return ids


def _filled(
    tokenizer: HubTokenizer, template: SplitRule, piece: Mapping[str, Any], ids: list[int]
) -> list[int]:
    if "SpecialToken" not in piece:
        return ids
    text = piece["SpecialToken"]["id"]
    special = template.get("special_tokens") or {}
    return special[text]["ids"] if text in special else [tokenizer.numbers[text]]
