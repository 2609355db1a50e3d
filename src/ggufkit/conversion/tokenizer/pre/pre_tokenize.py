r"""Splits a text into the words that a tokenizer's model sees, by its added tokens and its rules.

Tokenizers use Oniguruma, and Python lacks its `\p{L}`. Since the text is known, a class becomes
the list of the text's characters that belong to it. The rules are untrusted: an expression may take
forever, replacements may grow without limit. So they run in a separate process with limits. This
module imports little, to start fast.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, Final

from ggufkit.conversion.tokenizer.token_text import visible
from ggufkit.errors import MISFORMED
from ggufkit.system.sandbox import StoppedError, answer_of

SplitRule = Mapping[str, Any]
Splitter = Callable[[str, SplitRule], list[str]]
SplitSpan = tuple[str, bool]  # a piece of text, and whether a pattern or an added token matched it
Added = Mapping[str, Any]  # the fields of an AddedToken

GPT2_SPLIT: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CJK: Final = (
    *((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F)),
    *((0x2B740, 0x2B81F), (0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)),
)
_PROPERTY: Final = re.compile(r"\\([pP])\{(\^?)(\w+)\}")
_HEX: Final = re.compile(r"\\[xu]\{([0-9A-Fa-f]{1,6})\}")
_HAN: Final = "CJK UNIFIED IDEOGRAPH"
_SCRIPTS: Final = {"Han": _HAN, "Hiragana": "HIRAGANA", "Katakana": "KATAKANA", "Hangul": "HANGUL"}
_CATEGORIES: Final = frozenset(["L", "M", "N", "P", "S", "Z", "C"]) | {
    *("Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe"),
    *("Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"),
}
_OPEN: Final = "[^"
_NONE: Final = "\U0010ffff"  # matches no character: Python does not allow an empty class
MOST_GROWTH: Final = 16  # a byte may become two characters, and compatibility forms grow


class UntranslatableError(ValueError):
    """A rule of a tokenizer that is unknown here."""


def normalized(text: str, rule: SplitRule | None) -> str:
    """Return the text after the normalizer `rule`."""
    kind = (rule or {}).get("type")
    if rule is None or kind is None:
        return text
    if kind == "Sequence":
        for part in rule.get("normalizers") or []:
            text = normalized(text, part)
        return text
    if kind not in _NORMALIZERS:
        raise UntranslatableError(f"the normalizer {kind}")
    return _NORMALIZERS[kind](text, rule)


def split(text: str, rule: SplitRule | None, *, is_first: bool = True) -> list[str]:
    """Return the words that the pre-tokenizer `rule` makes of a text."""
    kind = (rule or {}).get("type")
    if rule is None or kind is None:
        return [text]
    if kind == "Sequence":
        words = [(text, is_first)]
        for part in rule.get("pretokenizers") or []:
            words = [
                (word, first and i == 0)
                for outer, first in words
                for i, word in enumerate(split(outer, part, is_first=first))
            ]
        return [word for word, _ in words]
    if kind not in _SPLITTERS:
        raise UntranslatableError(f"the pre-tokenizer {kind}")
    if rule.get("prepend_scheme") == "first":
        rule = {**rule, "prepend_scheme": "always" if is_first else "never"}
    return [word for word in _SPLITTERS[kind](text, rule) if word]


def _without_accents(text: str) -> str:
    return "".join(char for char in text if unicodedata.category(char) != "Mn")


def _stripped(text: str, rule: SplitRule) -> str:
    text = text.lstrip() if rule.get("strip_left", True) else text
    return text.rstrip() if rule.get("strip_right", True) else text


def _for_bert(text: str, rule: SplitRule) -> str:
    if rule.get("clean_text", True):
        text = "".join(map(_cleaned, text))
    if rule.get("handle_chinese_chars", True):
        is_cjk = {char: any(low <= ord(char) <= high for low, high in _CJK) for char in {*text}}
        text = "".join(f" {char} " if is_cjk[char] else char for char in text)
    lowers = rule.get("lowercase", True)
    strips = rule.get("strip_accents")
    if lowers if strips is None else strips:
        text = _without_accents(unicodedata.normalize("NFD", text))
    return text.lower() if lowers else text


def _cleaned(char: str) -> str:
    if char in "\t\n\r" or char.isspace():
        return " "
    return "" if unicodedata.category(char)[0] == "C" or char == "\ufffd" else char


_NORMALIZERS: Final[Mapping[str, Callable[[str, SplitRule], str]]] = {
    "NFC": lambda text, _: unicodedata.normalize("NFC", text),
    "NFD": lambda text, _: unicodedata.normalize("NFD", text),
    "NFKC": lambda text, _: unicodedata.normalize("NFKC", text),
    "NFKD": lambda text, _: unicodedata.normalize("NFKD", text),
    "Lowercase": lambda text, _: text.lower(),
    "StripAccents": lambda text, _: _without_accents(text),
    "Replace": lambda text, rule: _matcher(rule, text).sub(
        lambda _: str(rule.get("content", "")), text
    ),
    "Prepend": lambda text, rule: str(rule.get("prepend", "")) + text if text else text,
    "Strip": _stripped,
    "BertNormalizer": _for_bert,
    "ByteLevel": lambda text, _: visible(text.encode()),
}


def _matcher(rule: SplitRule, text: str) -> re.Pattern[str]:
    pattern = rule.get("pattern") or {}
    if "Regex" in pattern:
        return compiled(pattern["Regex"], text)
    if isinstance(pattern.get("String"), str):
        return re.compile(re.escape(pattern["String"]))
    raise UntranslatableError("a rule without a pattern")


def spans(text: str, pattern: re.Pattern[str]) -> Iterator[SplitSpan]:
    """Yield the matches of a pattern and the texts between."""
    offset = 0
    for match in pattern.finditer(text):
        if match.start() > offset:
            yield text[offset : match.start()], False
        yield match[0], True
        offset = match.end()
    if offset < len(text):
        yield text[offset:], False


def behaved(pieces: Iterable[SplitSpan], behavior: str) -> list[str]:
    """Return the words that a split with the given behavior makes of spans."""
    words: list[str] = []
    before: bool | None = None
    for text, matched in pieces:
        if behavior == "Removed" and matched:
            before = matched
            continue
        joins = {
            "MergedWithPrevious": matched and before is False,
            "MergedWithNext": not matched and before is True,
            "Contiguous": matched == before,
        }.get(behavior, False)
        if joins and words:
            words[-1] += text
        else:
            words.append(text)
        before = matched
    return words


def _by_pattern(text: str, rule: SplitRule) -> list[str]:
    pieces = spans(text, _matcher(rule, text))
    if rule.get("invert"):
        pieces = ((text, not matched) for text, matched in pieces)
    return behaved(pieces, str(rule.get("behavior", "Isolated")))


def _by_char(text: str, test: Callable[[str], bool], behavior: str) -> list[str]:
    pieces: list[SplitSpan] = []
    for passes, run in groupby(text, test):
        chars = [*run]
        pieces += [(char, True) for char in chars] if passes else [("".join(chars), False)]
    return behaved(pieces, behavior)


def _byte_level(text: str, rule: SplitRule) -> list[str]:
    if rule.get("add_prefix_space", True) and not text.startswith(" "):
        text = " " + text
    words = [text]
    if rule.get("use_regex", True):
        words = [word for word, _ in spans(text, compiled(GPT2_SPLIT, text))]
    return [visible(word.encode()) for word in words]


def _metaspace(text: str, rule: SplitRule) -> list[str]:
    mark = rule.get("replacement", "▁")
    default = "always" if rule.get("add_prefix_space", True) else "never"
    scheme = rule.get("prepend_scheme", default)
    text = text.replace(" ", mark)
    if scheme == "always" and not text.startswith(mark):
        text = mark + text
    if not rule.get("split", True):
        return [text]
    return behaved(spans(text, re.compile(re.escape(mark))), "MergedWithNext")


def _is_punctuation(char: str) -> bool:
    is_ascii = char.isascii() and char.isprintable() and not (char.isalnum() or char == " ")
    return is_ascii or unicodedata.category(char)[0] == "P"


_SPLITTERS: Final[Mapping[str, Splitter]] = {
    "ByteLevel": _byte_level,
    "Split": _by_pattern,
    "Metaspace": _metaspace,
    "Digits": lambda text, rule: _by_char(
        text, str.isnumeric, "Isolated" if rule.get("individual_digits") else "Contiguous"
    ),
    "Punctuation": lambda text, rule: _by_char(
        text, _is_punctuation, str(rule.get("behavior", "Isolated"))
    ),
    "WhitespaceSplit": lambda text, _: text.split(),
    "Whitespace": lambda text, _: re.findall(r"\w+|[^\w\s]+", text),
    "BertPreTokenizer": lambda text, _: [
        part for word in text.split() for part in _by_char(word, _is_punctuation, "Isolated")
    ],
}


def compiled(pattern: str, text: str) -> re.Pattern[str]:
    """Return an expression that matches in `text` the same as `pattern`."""
    try:
        return re.compile(_translated(pattern, "".join(sorted({*text}))), re.MULTILINE)
    except re.error as error:
        raise UntranslatableError(f"the expression {pattern!r}: {error}") from None


def _members(name: str, alphabet: str) -> str:
    if name in _SCRIPTS:
        start = _SCRIPTS[name]
        return "".join(c for c in alphabet if unicodedata.name(c, "").startswith(start))
    if name not in _CATEGORIES:
        raise UntranslatableError(f"the property {name}")
    return "".join(c for c in alphabet if unicodedata.category(c).startswith(name))


def _translated(pattern: str, alphabet: str) -> str:
    parts: list[str] = []
    offset = depth = 0
    while offset < len(pattern):
        match = _PROPERTY.match(pattern, offset) or _HEX.match(pattern, offset)
        if match:
            parts.append(_characters(match, alphabet, inside=depth > 0))
            offset = match.end()
            continue
        step = 2 if pattern[offset] == "\\" else 1
        piece = pattern[offset : offset + step]
        if depth and (piece == "[" or pattern.startswith("&&", offset)):
            raise UntranslatableError(f"a class within a class in {pattern!r}")
        if piece == "[":
            step = len(_OPEN) if pattern.startswith(_OPEN, offset) else 1
            piece, depth = pattern[offset : offset + step], 1
        elif piece == "]":
            depth = 0
        parts.append(piece)
        offset += step
    return "".join(parts)


def _characters(match: re.Match[str], alphabet: str, *, inside: bool) -> str:
    if match.re is _HEX:
        return re.escape(chr(int(match[1], 16)))
    chosen = _members(match[3], alphabet)
    if (match[1] == "P") != bool(match[2]):
        chosen = "".join(c for c in alphabet if c not in chosen)
    escaped = re.escape(chosen or _NONE)
    return escaped if inside else f"[{escaped}]"


def words(
    text: str,
    pre_tokenizer: SplitRule | None,
    normalizer: SplitRule | None = None,
    added: Iterable[Added] = (),
) -> list[SplitSpan]:
    """Return the words and the added tokens of a text.

    Raises UntranslatableError for unknown rules and for rules that exceed the limits of time and
    memory; ValueError for malformed rules.
    """
    job = {"text": text, "pre_tokenizer": pre_tokenizer, "normalizer": normalizer}
    try:
        reply = answer_of(__name__, {**job, "added": [*added]})
    except StoppedError as error:
        raise UntranslatableError(f"rules that cannot be applied ({error})") from None
    if "unknown" in reply:
        raise UntranslatableError(reply["unknown"])
    if "misformed" in reply:
        raise ValueError(reply["misformed"])
    return [(word, is_added) for word, is_added in reply["words"]]


def answer(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to a job; this runs in the separate process."""
    try:
        pieces = [*_words(**job)]
    except UntranslatableError as error:
        return {"unknown": str(error)}
    except MISFORMED as error:
        return {"misformed": f"{error.__class__.__name__}: {error}"}
    size, length = sum(len(word) for word, _ in pieces), len(job["text"])
    if size > MOST_GROWTH * length:
        return {"unknown": f"rules that make {size} characters of {length}"}
    return {"words": pieces}


def _words(
    text: str, pre_tokenizer: SplitRule | None, normalizer: SplitRule | None, added: Iterable[Added]
) -> Iterator[SplitSpan]:
    for i, (piece, is_added) in enumerate(_pieces(text, normalizer, added)):
        if is_added:
            yield piece, True
        else:
            yield from ((word, False) for word in split(piece, pre_tokenizer, is_first=i == 0))


# Added tokens are found first: some in the original text, others in the normalized one.
def _pieces(text: str, rule: SplitRule | None, added: Iterable[Added]) -> Iterator[SplitSpan]:
    tokens = [*added]
    raw = {t["content"]: t for t in tokens if not t["normalized"]}
    other = {normalized(t["content"], rule): t for t in tokens if t["normalized"]}
    for piece in _split_at_tokens(text, raw):
        if piece[1]:
            yield piece
        else:
            yield from _split_at_tokens(normalized(piece[0], rule), other)


def _split_at_tokens(text: str, tokens: Mapping[str, Added]) -> Iterator[SplitSpan]:
    by_first: dict[str, list[str]] = {}
    for key in sorted(tokens, key=len, reverse=True):
        by_first.setdefault(key[:1], []).append(key)
    start = place = 0
    while place < len(text):
        candidates = by_first.get(text[place], ())
        content = next((c for c in candidates if text.startswith(c, place)), None)
        end = place + len(content or "")
        if content is None or not _may_match(text, place, end, tokens[content]):
            place += 1
            continue
        token = tokens[content]
        if before := text[start:place].rstrip() if token["lstrip"] else text[start:place]:
            yield before, False
        yield token["content"], True
        start = place = end + (len(text[end:]) - len(text[end:].lstrip()) if token["rstrip"] else 0)
    if start < len(text):
        yield text[start:], False


def _may_match(text: str, start: int, end: int, token: Added) -> bool:
    if not token["single_word"]:
        return True
    neighbours = text[start - 1 : start] + text[end : end + 1]
    return not any(char.isalnum() or char == "_" for char in neighbours)
