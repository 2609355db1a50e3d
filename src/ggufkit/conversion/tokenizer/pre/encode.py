"""Encodes a text to token ids by a tokenizer's rules, to find the name of its pre-tokenizer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import pairwise
from typing import Any, Final

from ggufkit.conversion.tokenizer.hub_tokenizer import HubTokenizer
from ggufkit.conversion.tokenizer.pre.pre_tokenize import SplitRule, UntranslatableError, words

_MAX_WORD: Final = 100  # longer words are unknown to WordPiece
_MOST_AROUND: Final = 64  # ids that a template may add to a text


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
    return _around(tokenizer, ids)


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
            spelled = [f"<0x{byte:02X}>" for byte in char.encode()]
            is_spelled = self.byte_fallback and all(text in self.numbers for text in spelled)
            is_unknown = char not in self.numbers and not is_spelled
            if not is_unknown:
                yield from [char] if char in self.numbers else spelled
            elif self.unknown is not None and not (was_unknown and self.fuses):
                yield None
            was_unknown = is_unknown


class _WordPieceModel:
    """WordPiece: takes the longest known beginning, then the longest known continuations."""

    def __init__(self, tokenizer: HubTokenizer, model: SplitRule) -> None:
        self.numbers = tokenizer.vocabulary
        self.prefix = str(model.get("continuing_subword_prefix", "##"))
        self.unknown = [self.numbers[str(model.get("unk_token", "[UNK]"))]]
        self.longest = int(model.get("max_input_chars_per_word", _MAX_WORD))

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


def _around(tokenizer: HubTokenizer, ids: list[int]) -> list[int]:
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
