"""Makes tokenizer.json for each kind of vocabulary that both llama.cpp and Hugging Face have."""

from __future__ import annotations

from base64 import b64encode
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from ggufkit.conversion.tokenizer.keys import VocabularyKeys
from ggufkit.conversion.tokenizer.pre.pre_tokenizer_name import DEFAULT, rules_of_name
from ggufkit.conversion.tokenizer.sentencepiece_model import SPACE, PieceType
from ggufkit.conversion.tokenizer.special_tokens import SPACE as MERGE_SPACE
from ggufkit.system.threads import Say

TokenizerRules = dict[str, Any]
_NO_BPE_EXTRAS: Final = {
    "dropout": None,
    "continuing_subword_prefix": None,
    "end_of_word_suffix": None,
}


# Pre-tokenizers of BPE over characters; rare characters become tokens of bytes.
OF_CHARACTERS: Final = {"gemma4", "granite-embed-multi-311m", "sarvam-moe"}
_LINES: Final = r"[^\n]+|[\n]+"  # llama.cpp merges nothing across them


def byte_pairs(keys: VocabularyKeys, say: Say) -> TokenizerRules:
    """Return the rules of BPE over bytes, or over characters where the pre-tokenizer says so."""
    if keys.pre in OF_CHARACTERS:
        return character_pairs(keys, say)
    row = rules_of_name(keys.pre)
    if row is None:
        say(f"the pre-tokenizer {keys.pre!r} is not known: llama.cpp's default is used")
        row = rules_of_name(DEFAULT)
    patterns = row.patterns if row else ()
    splits = [
        {"type": "Split", "pattern": {"Regex": p}, "behavior": "Isolated", "invert": False}
        for p in patterns
    ]
    spelled = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": False,
    }
    model = {
        "type": "BPE",
        **_NO_BPE_EXTRAS,
        "unk_token": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": bool(row and row.ignores_merges),
        "vocab": _vocabulary(keys),
        "merges": [*_halves(keys)],
    }
    pre = {"type": "Sequence", "pretokenizers": [*splits, spelled]}
    return _rules(keys, None, pre, {**spelled, "use_regex": True}, model)


def character_pairs(keys: VocabularyKeys, say: Say) -> TokenizerRules:  # noqa: ARG001 (a builder's signature)
    """Return the rules of BPE over characters, with spaces as in SentencePiece."""
    model = {
        "type": "BPE",
        **_NO_BPE_EXTRAS,
        "unk_token": keys.text_of("unk"),
        "fuse_unk": True,
        "byte_fallback": True,
        "ignore_merges": False,
        "vocab": _vocabulary(keys),
        "merges": [*_halves(keys)],
    }
    normalizer = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    pre = {
        "type": "Split", "pattern": {"Regex": _LINES}, "behavior": "Isolated", "invert": False,
    }  # fmt: skip
    decoders = [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    return _rules(keys, normalizer, pre, {"type": "Sequence", "decoders": decoders}, model)


def _halves(keys: VocabularyKeys) -> Iterator[list[str]]:
    known = set(keys.texts)
    for merge in keys.get("merges") or []:
        left, _, right = merge.partition(" ")
        if left + right in known:
            yield [left, right]
        else:  # a space within a half was replaced by MERGE_SPACE
            yield [left.replace(MERGE_SPACE, " "), right.replace(MERGE_SPACE, " ")]


def sentence_pieces(keys: VocabularyKeys, say: Say) -> TokenizerRules:
    """Return the rules of a SentencePiece model of the BPE kind: merges in the order of scores."""
    normal = [n for n in range(len(keys.texts)) if keys.types[n] == PieceType.NORMAL]
    if len({keys.scores[n] for n in normal}) < len(normal) // 2:
        say(
            "the tokens have no scores that give the order of merges: token ids may differ from "
            "llama.cpp's"
        )
    unknown = keys.id_of("unk")
    model = {
        "type": "BPE",
        **_NO_BPE_EXTRAS,
        "unk_token": None if unknown is None else keys.texts[unknown],
        "fuse_unk": True,
        "byte_fallback": True,
        "ignore_merges": False,
        "vocab": _vocabulary(keys),
        "merges": _scored_merges(keys, normal),
    }
    prefix = keys.get("add_space_prefix")
    has_prefix = True if prefix is None else prefix
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    prepend = [{"type": "Prepend", "prepend": SPACE}] if has_prefix else []
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if has_prefix else []
    decoders = [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        *strip,
    ]
    normalizer = {"type": "Sequence", "normalizers": [*prepend, replace]}
    return _rules(keys, normalizer, None, {"type": "Sequence", "decoders": decoders}, model)


# Limit for pieces that merges can make, in characters. All splits of a piece are tried, which takes
# time quadratic in its length; real pieces have tens of characters.
MAX_MERGED: Final = 512


def _scored_merges(keys: VocabularyKeys, normal: list[int]) -> list[tuple[str, str]]:
    """Return every pair of pieces that forms a piece, higher scores first."""
    short = [n for n in normal if len(keys.texts[n]) <= MAX_MERGED]
    numbers = {keys.texts[n]: n for n in short}
    lengths = sorted({len(text) for text in numbers} - {0})
    found = []
    for number in short:
        text = keys.texts[number]
        for at in lengths[: bisect_left(lengths, len(text))]:
            left = numbers.get(text[:at])
            if left is None:
                continue
            right = numbers.get(text[at:])
            if right is not None:
                found.append((-keys.scores[number], number, left, right))
    # Tuples, which the garbage collector need not visit: there are half a million.
    return [(keys.texts[left], keys.texts[right]) for _, _, left, right in sorted(found)]


def unigram(keys: VocabularyKeys, say: Say) -> TokenizerRules:  # noqa: ARG001 (a builder's signature)
    """Return the rules of a Unigram model."""
    types = keys.types
    unknown = next((n for n, kind in enumerate(types) if kind == PieceType.UNKNOWN), None)
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
        "byte_fallback": PieceType.BYTE in types,
    }
    normalizer = {"type": "Sequence", "normalizers": normalizers}
    return _rules(keys, normalizer, space, space, model)


def word_pieces(keys: VocabularyKeys, say: Say) -> TokenizerRules:  # noqa: ARG001 (a builder's signature)
    """Return the rules of WordPiece."""
    vocabulary = {_unmarked(keys, n): n for n in range(len(keys.texts)) if not keys.is_padding(n)}
    unknown = keys.text_of("unk") or "[UNK]"
    lowercase = keys.get("normalizer.lowercase")
    normalizer = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": True,
        "strip_accents": keys.get("normalizer.strip_accents"),
        "lowercase": True if lowercase is None else lowercase,
    }
    model = {
        "type": "WordPiece",
        "unk_token": unknown,
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": vocabulary,
    }
    decoder = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    return _rules(keys, normalizer, {"type": "BertPreTokenizer"}, decoder, model)


def _unmarked(keys: VocabularyKeys, number: int) -> str:
    text = keys.texts[number]
    if keys.is_added(number):
        return text
    return text[len(SPACE) :] if text.startswith(SPACE) else f"##{text}"


# Common to all kinds.


def _vocabulary(keys: VocabularyKeys) -> dict[str, int]:
    """Return ids by text, without added tokens whose ids the library computes itself."""
    numbers = [n for n in range(len(keys.texts)) if not keys.is_padding(n)]
    ordinary = [n for n in numbers if not keys.is_added(n)]
    last = ordinary[-1] if ordinary else -1
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
        "version": "1.0",
        "truncation": None,
        "padding": None,
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
        "content": keys.texts[number],
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        # Nothing is normalized here, but conversion decodes tokens that are not `normalized`.
        "normalized": keys.model == "gpt2" and not is_special,
        "special": is_special,
    }


def _around(keys: VocabularyKeys) -> TokenizerRules | None:
    """Return the template of the tokens that are added to one text or two."""
    first = keys.id_of("bos") if keys.adds("bos") else None
    last = keys.id_of("eos") if keys.adds("eos") else None
    if keys.model == "bert" and last is None:
        last = keys.id_of("sep")
    if first is None and last is None:
        return None
    start = [_special(keys, first)] if first is not None else []
    end = [_special(keys, last)] if last is not None else []
    a, b = ({"Sequence": {"id": name, "type_id": kind}} for kind, name in enumerate("AB"))
    between = {True: [*end, *end], False: end, None: []}[keys.get("add_sep_token")]
    used = {keys.texts[n]: n for n in (first, last) if n is not None}
    specials = {
        text: {"id": text, "ids": [number], "tokens": [text]} for text, number in used.items()
    }
    return {
        "type": "TemplateProcessing",
        "single": [*start, a, *end],
        "pair": [*start, a, *between, b, *end],
        "special_tokens": specials,
    }


def _special(keys: VocabularyKeys, number: int) -> TokenizerRules:
    return {"SpecialToken": {"id": keys.texts[number], "type_id": 0}}


MODELS: Final[Mapping[str, Callable[[VocabularyKeys, Say], TokenizerRules]]] = {
    "gpt2": byte_pairs,
    "gemma4": character_pairs,
    "llama": sentence_pieces,
    "bert": word_pieces,
    "t5": unigram,
}
