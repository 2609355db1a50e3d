"""Makes tokenizer.json for each kind of vocabulary that both llama.cpp and Hugging Face have."""

from __future__ import annotations

import json
from base64 import b64encode
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ggufkit.conversion.tokenizer.keys import VocabularyKeys
from ggufkit.conversion.tokenizer.pre.pre_tokenizer_name import (
    DEFAULT,
    pre_tokenizers,
    rules_of_name,
)
from ggufkit.conversion.tokenizer.sentencepiece_model import SPACE, PieceType
from ggufkit.conversion.tokenizer.special_tokens import MERGE_SPACE
from ggufkit.system.threads import Notify

TokenizerRules = dict[str, Any]
# The objects of the file as they are for all vocabularies, in the order of their fields.
_FORMS: Final = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
_SPACES_TO_MARKS: Final[TokenizerRules] = _FORMS["spaces to marks"]
_TO_CHARACTERS: Final[list[TokenizerRules]] = _FORMS["to characters"]
# Pre-tokenizers of BPE over characters; rare characters become tokens of bytes.
OF_CHARACTERS: Final = {"gemma4", "granite-embed-multi-311m", "sarvam-moe"}
_LINES: Final = r"[^\n]+|[\n]+"  # llama.cpp merges nothing across them


def _split(pattern: str) -> TokenizerRules:
    return {
        "type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False,
    }  # fmt: skip


def _bpe(
    keys: VocabularyKeys,
    merges: Iterable[Sequence[str]],
    unknown: str | None,
    *,
    falls_back: bool,
    ignores_merges: bool = False,
) -> TokenizerRules:
    flags = {"fuse_unk": falls_back, "byte_fallback": falls_back, "ignore_merges": ignores_merges}
    texts = {"unk_token": unknown, "vocab": _vocabulary(keys), "merges": [*merges]}
    return {**_FORMS["BPE"], **flags, **texts}


def byte_pairs(keys: VocabularyKeys, say: Notify) -> TokenizerRules:
    """Return the rules of BPE over bytes, or over characters where the pre-tokenizer says so."""
    if keys.pre in OF_CHARACTERS:
        return character_pairs(keys, say)
    row = rules_of_name(keys.pre)
    if row is None:
        say(f"the pre-tokenizer {keys.pre!r} is not known: llama.cpp's default is used")
        row = pre_tokenizers()[DEFAULT]
    bytes_only = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    parts = [*map(_split, row.patterns), {**bytes_only, "use_regex": False}]
    model = _bpe(keys, _halves(keys), None, falls_back=False, ignores_merges=row.ignores_merges)
    pre = {"type": "Sequence", "pretokenizers": parts}
    return _rules(keys, None, pre, {**bytes_only, "use_regex": True}, model)


def character_pairs(keys: VocabularyKeys, say: Notify) -> TokenizerRules:  # noqa: ARG001 (a builder's signature)
    """Return the rules of BPE over characters, with spaces as in SentencePiece."""
    model = _bpe(keys, _halves(keys), keys.text_of("unk"), falls_back=True)
    decoder = {"type": "Sequence", "decoders": [*_TO_CHARACTERS]}
    return _rules(keys, _SPACES_TO_MARKS, _split(_LINES), decoder, model)


def _halves(keys: VocabularyKeys) -> Iterator[list[str]]:
    vocabulary = set(keys.texts)
    for merge in keys.get("merges") or []:
        first, _, second = merge.partition(" ")
        if first + second in vocabulary:
            yield [first, second]
        else:  # a space within a half was replaced by MERGE_SPACE
            yield [first.replace(MERGE_SPACE, " "), second.replace(MERGE_SPACE, " ")]


def sentence_pieces(keys: VocabularyKeys, say: Notify) -> TokenizerRules:
    """Return the rules of a SentencePiece model of the BPE kind: merges in the order of scores."""
    normal = [n for n in range(len(keys.texts)) if keys.types[n] == PieceType.NORMAL]
    if len({keys.scores[n] for n in normal}) < len(normal) // 2:
        say(
            "the tokens have no scores that give the order of merges: token ids may differ from "
            "llama.cpp's"
        )
    model = _bpe(keys, _scored_merges(keys, normal), keys.text_of("unk"), falls_back=True)
    normalizers, decoders = [_SPACES_TO_MARKS], [*_TO_CHARACTERS]
    if keys.get("add_space_prefix") is not False:
        normalizers.insert(0, {"type": "Prepend", "prepend": SPACE})
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    normalizer = {"type": "Sequence", "normalizers": normalizers}
    return _rules(keys, normalizer, None, {"type": "Sequence", "decoders": decoders}, model)


# Limit for pieces that merges can make, in characters. All splits of a piece are tried, which takes
# time quadratic in its length; real pieces have tens of characters.
MAX_MERGED: Final = 512


def _scored_merges(keys: VocabularyKeys, normal: list[int]) -> list[tuple[str, str]]:
    short = [n for n in normal if len(keys.texts[n]) <= MAX_MERGED]
    numbers = {keys.texts[n]: n for n in short}
    lengths = sorted({len(text) for text in numbers} - {0})
    # Tuples, which the garbage collector need not visit: there are half a million.
    merges: list[tuple[str, str]] = []
    for number in sorted(short, key=lambda number: -keys.scores[number]):
        text = keys.texts[number]
        halves = []
        for cut in lengths[: bisect_left(lengths, len(text))]:
            first = numbers.get(text[:cut])
            if first is None:
                continue
            second = numbers.get(text[cut:])
            if second is not None:
                halves.append((first, second))
        merges += [(keys.texts[first], keys.texts[second]) for first, second in sorted(halves)]
    return merges


def unigram(keys: VocabularyKeys, say: Notify) -> TokenizerRules:  # noqa: ARG001 (a builder's signature)
    """Return the rules of a Unigram model."""
    unknown = keys.types.index(PieceType.UNKNOWN) if PieceType.UNKNOWN in keys.types else None
    charsmap = bytes(keys.get("precompiled_charsmap") or [])
    normalizers: list[TokenizerRules] = []
    if charsmap:
        coded = b64encode(charsmap).decode()
        normalizers.append({"type": "Precompiled", "precompiled_charsmap": coded})
    if keys.get("remove_extra_whitespaces"):
        normalizers.append({"type": "Strip", "strip_left": True, "strip_right": True})
        several = {"Regex": " {2,}"}
        normalizers.append({"type": "Replace", "pattern": several, "content": " "})
    scheme = "always" if keys.get("add_space_prefix") is not False else "never"
    space = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": True}
    model = {
        "type": "Unigram",
        "unk_id": unknown,
        "vocab": [[keys.texts[n], keys.scores[n]] for n in range(keys.unpadded)],
        "byte_fallback": PieceType.BYTE in keys.types,
    }
    normalizer = {"type": "Sequence", "normalizers": normalizers}
    return _rules(keys, normalizer, space, space, model)


def word_pieces(keys: VocabularyKeys, say: Notify) -> TokenizerRules:  # noqa: ARG001 (a builder's signature)
    """Return the rules of WordPiece."""
    vocabulary = {_unmarked(keys, n): n for n in range(len(keys.texts)) if not keys.is_padding(n)}
    normalizer = {
        **_FORMS["BertNormalizer"],
        "strip_accents": keys.get("normalizer.strip_accents"),
        "lowercase": keys.get("normalizer.lowercase") is not False,
    }
    unknown = keys.text_of("unk") or "[UNK]"
    model = {**_FORMS["WordPiece"], "unk_token": unknown, "vocab": vocabulary}
    decoder = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    return _rules(keys, normalizer, {"type": "BertPreTokenizer"}, decoder, model)


def _unmarked(keys: VocabularyKeys, number: int) -> str:
    text = keys.texts[number]
    if keys.is_added(number):
        return text
    return text[len(SPACE) :] if text.startswith(SPACE) else f"##{text}"


def _vocabulary(keys: VocabularyKeys) -> dict[str, int]:
    numbers = [n for n in range(len(keys.texts)) if not keys.is_padding(n)]
    last = max((n for n in numbers if not keys.is_added(n)), default=-1)
    after = [n for n in numbers if n > last]
    before = [n for n in numbers if n <= last]
    if after != [*range(len(before), len(numbers))]:
        before = numbers
    return {keys.texts[number]: number for number in before}


def _rules(
    keys: VocabularyKeys,
    normalizer: TokenizerRules | None,
    pre_tokenizer: TokenizerRules | None,
    decoder: TokenizerRules,
    model: TokenizerRules,
) -> TokenizerRules:
    added = [n for n in range(len(keys.texts)) if keys.is_added(n) and not keys.is_padding(n)]
    return {
        **_FORMS["tokenizer"],
        "added_tokens": [{"id": n, **added_token(keys, n)} for n in added],
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": _around(keys),
        "decoder": decoder,
        "model": model,
    }


def added_token(keys: VocabularyKeys, number: int) -> TokenizerRules:
    """Return the description of an added token."""
    is_special = keys.types[number] != PieceType.USER_DEFINED
    return {
        **_FORMS["added token"],
        "content": keys.texts[number],
        # Nothing is normalized here, but conversion decodes tokens that are not `normalized`.
        "normalized": keys.model == "gpt2" and not is_special,
        "special": is_special,
    }


def _around(keys: VocabularyKeys) -> TokenizerRules | None:
    first = keys.id_of("bos") if keys.adds("bos") else None
    last = keys.id_of("eos") if keys.adds("eos") else None
    if keys.model == "bert" and last is None:
        last = keys.id_of("sep")
    if first is None and last is None:
        return None
    start, end = (
        [{"SpecialToken": {"id": keys.texts[n], "type_id": 0}}] if n is not None else []
        for n in (first, last)
    )
    a, b = ({"Sequence": {"id": name, "type_id": kind}} for kind, name in enumerate("AB"))
    between = {True: [*end, *end], False: end, None: []}[keys.get("add_sep_token")]
    specials = {
        keys.texts[n]: {"id": keys.texts[n], "ids": [n], "tokens": [keys.texts[n]]}
        for n in (first, last)
        if n is not None
    }
    return {
        "type": "TemplateProcessing",
        "single": [*start, a, *end],
        "pair": [*start, a, *between, b, *end],
        "special_tokens": specials,
    }


MODELS: Final[Mapping[str, Callable[[VocabularyKeys, Notify], TokenizerRules]]] = {
    "gpt2": byte_pairs,
    "gemma4": character_pairs,
    "llama": sentence_pieces,
    "bert": word_pieces,
    "t5": unigram,
}
