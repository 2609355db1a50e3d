"""A text as token ids, by a tokenizer's own rules: what the name of its pre-tokenizer hangs on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from ggufkit.converting.vocabularies.hub import AddedToken, HubTokenizer
from ggufkit.converting.vocabularies.patterns import UntranslatableError
from ggufkit.converting.vocabularies.splitting import Rule, normalized, split

_MAX_WORD: Final = 100  # WordPiece gives up on longer words
Piece = tuple[str, bool]  # a text, and whether it is an added token


def encode(tokenizer: HubTokenizer, text: str) -> list[int]:
    """Return the ids of a text with the special tokens that belong around it.

    Raises UntranslatableError for a tokenizer with rules that are not understood here.
    """
    ids: list[int] = []
    model = _model(tokenizer)
    for i, (piece, is_added) in enumerate(_pieces(tokenizer, text)):
        if is_added:
            ids.append(tokenizer.numbers[piece])
            continue
        for word in split(piece, tokenizer.rules.get("pre_tokenizer"), is_first=i == 0):
            ids += model.encode(word)
    return _around(tokenizer, ids)


# Added tokens are found first, in the text as it is and then in the normalized one.


def _pieces(tokenizer: HubTokenizer, text: str) -> Iterator[Piece]:
    rule = tokenizer.rules.get("normalizer")
    raw = {t.content: t for t in tokenizer.added.values() if not t.normalized}
    other = {normalized(t.content, rule): t for t in tokenizer.added.values() if t.normalized}
    for found in _found(text, raw):
        if found[1]:
            yield found
        else:
            yield from _found(normalized(found[0], rule), other)


def _found(text: str, tokens: Mapping[str, AddedToken]) -> Iterator[Piece]:
    """Yield the longest of `tokens` wherever one begins, and the texts between."""
    by_first: dict[str, list[str]] = {}
    for key in sorted(tokens, key=len, reverse=True):
        by_first.setdefault(key[:1], []).append(key)
    start = at = 0
    while at < len(text):
        candidates = by_first.get(text[at], ())
        content = next((c for c in candidates if text.startswith(c, at)), None)
        end = at + len(content or "")
        if content is None or not _stands(text, at, end, tokens[content]):
            at += 1
            continue
        token = tokens[content]
        before: str = text[start:at]
        before = before.rstrip() if token.lstrip else before
        if before:
            yield before, False
        yield token.content, True
        start = at = end + (_spaces(text, end) if token.rstrip else 0)
    if start < len(text):
        yield text[start:], False


def _stands(text: str, start: int, end: int, token: AddedToken) -> bool:
    if not token.single_word:
        return True
    around = text[start - 1 : start] + text[end : end + 1]
    return not any(char.isalnum() or char == "_" for char in around)


def _spaces(text: str, at: int) -> int:
    return len(text[at:]) - len(text[at:].lstrip())


# Models.


class _PairModel:
    """BPE: a word's characters, joined pair by pair in the order of the merges."""

    def __init__(self, tokenizer: HubTokenizer, model: Rule) -> None:
        self.numbers = tokenizer.vocabulary
        self.ranks: dict[tuple[str | None, ...], int] = {
            pair: rank for rank, pair in enumerate(_pairs(model.get("merges") or []))
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
        symbols = self._merged([*self._symbols(word)])
        return [self.unknown if s is None else self.numbers[s] for s in symbols]  # type: ignore[misc]

    def _symbols(self, word: str) -> Iterator[str | None]:
        """Yield the characters that have a token, others as bytes or unknown (None)."""
        was_unknown = False
        for char in word:
            held = [char] if char in self.numbers else self._bytes(char)
            is_unknown = held is None
            if not is_unknown:
                yield from held or ()
            elif self.unknown is not None and not (was_unknown and self.fuses):
                yield None
            was_unknown = is_unknown

    def _bytes(self, char: str) -> list[str] | None:
        held = [f"<0x{byte:02X}>" for byte in char.encode()]
        return held if self.byte_fallback and all(s in self.numbers for s in held) else None

    def _merged(self, symbols: list[str | None]) -> list[str | None]:
        while len(symbols) > 1:
            pairs = pairwise(symbols)
            ranked = [(self.ranks[pair], i) for i, pair in enumerate(pairs) if pair in self.ranks]
            if not ranked:
                break
            _, at = min(ranked)
            symbols[at : at + 2] = [f"{symbols[at]}{symbols[at + 1]}"]
        return symbols


class _WordPieceModel:
    """WordPiece: the longest known beginning, then the longest known continuations."""

    def __init__(self, tokenizer: HubTokenizer, model: Rule) -> None:
        self.numbers = tokenizer.vocabulary
        self.prefix = str(model.get("continuing_subword_prefix", "##"))
        self.unknown = [self.numbers[str(model.get("unk_token", "[UNK]"))]]
        self.longest = int(model.get("max_input_chars_per_word", _MAX_WORD))

    def encode(self, word: str) -> list[int]:
        if len(word) > self.longest:
            return self.unknown
        ids, at = [], 0
        while at < len(word):
            prefix = self.prefix if at else ""
            ends = range(len(word), at, -1)
            end = next((end for end in ends if prefix + word[at:end] in self.numbers), None)
            if end is None:
                return self.unknown
            ids.append(self.numbers[prefix + word[at:end]])
            at = end
        return ids


def _model(tokenizer: HubTokenizer) -> _PairModel | _WordPieceModel:
    model = tokenizer.rules.get("model") or {}
    kind = model.get("type") or ("BPE" if "merges" in model else None)
    if kind == "BPE":
        return _PairModel(tokenizer, model)
    if kind == "WordPiece":
        return _WordPieceModel(tokenizer, model)
    raise UntranslatableError(f"the model {kind}")


def _pairs(merges: Sequence[Any]) -> Iterator[tuple[str, ...]]:
    for merge in merges:
        yield tuple(merge.split(" ", 1)) if isinstance(merge, str) else tuple(merge)


# Around the text.


def _around(tokenizer: HubTokenizer, ids: list[int]) -> list[int]:
    processor = tokenizer.rules.get("post_processor") or {}
    for part in processor.get("processors", [processor]):
        kind = part.get("type")
        if kind in {"RobertaProcessing", "BertProcessing"}:
            ids = [part["cls"][1], *ids, part["sep"][1]]
        elif kind == "TemplateProcessing":
            ids = [
                number
                for piece in part["single"]
                for number in _filled(tokenizer, part, piece, ids)
            ]
    return ids


def _filled(
    tokenizer: HubTokenizer, template: Rule, piece: Mapping[str, Any], ids: list[int]
) -> list[int]:
    if "SpecialToken" not in piece:
        return ids
    text = piece["SpecialToken"]["id"]
    known = template.get("special_tokens") or {}
    return known[text]["ids"] if text in known else [tokenizer.numbers[text]]
