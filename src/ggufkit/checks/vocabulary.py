"""Check a vocabulary: tokens, their types, special tokens, and merges."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import numpy as np

from ggufkit.checks.demands import pre_tokenizers, tokenizers
from ggufkit.checks.subject import NO_TOKENS, TOKENS, Broken, Subject, at_key
from ggufkit.format.values import Strings

KIND: Final = "tokenizer.ggml.model"
PRE: Final = "tokenizer.ggml.pre"
MERGES: Final = "tokenizer.ggml.merges"
TYPES: Final = "tokenizer.ggml.token_type"
TYPE_NAMES: Final = ("undefined", "normal", "unknown", "control", "user-defined", "unused", "byte")
_NORMAL: Final = 1
# Special tokens that end or begin a text: as ordinary text, users could write them.
_BOUNDS: Final = ("bos", "eos", "eot", "eom")
_BYTE_PAIRS: Final = "gpt2"  # the kind whose merges join two tokens into a third
# The kinds that need merges, except for one pre-tokenizer that needs none.
_MERGING: Final = (_BYTE_PAIRS, "hybriddna", "whitespace", "gemma4")
_WITHOUT_MERGES: Final = "kimi-k2"
_CUTTING: Final = (_BYTE_PAIRS, "hybriddna", "whitespace")  # the kinds that use `pre`
_MERGE: Final = re.compile(r"(.[^ ]*) (.+)", re.DOTALL)


def about_tokenizer(seen: Subject) -> Iterator[Broken]:
    """Check the keys that llama.cpp reads from a tokenizer before any token."""
    kind, pre = seen.metadata.get(KIND), seen.text(PRE)
    if kind is None:
        yield Broken("tokenizer-missing", {"key": KIND}, key=TOKENS)
    if not isinstance(kind, str):
        return  # the wrong type is a separate finding
    if kind not in tokenizers():
        yield at_key("tokenizer-unknown", KIND, found=kind)
    if kind in _CUTTING and pre and pre not in pre_tokenizers():
        yield at_key("pre-unknown", PRE, found=pre)
    if kind not in _MERGING or pre == _WITHOUT_MERGES:
        return
    if MERGES not in seen.metadata:
        yield Broken("merges-missing", {"kind": kind, "key": MERGES}, key=KIND)
    elif seen.metadata.type_name(MERGES) != "array[string]":
        found = {"found": seen.metadata.type_name(MERGES), "wanted": "array[string]"}
        yield at_key("key-kind", MERGES, **found)


def vocabulary_faults(seen: Subject) -> Iterator[Broken]:
    """Yield every rule that the tokens of a model break."""
    kind = seen.text(KIND)
    held = seen.metadata.get(TOKENS, None)
    if not isinstance(held, Strings):
        if kind and kind not in NO_TOKENS:
            yield Broken("tokens-missing", {"kind": kind, "key": TOKENS}, key=KIND)
        return
    tokens = held.tolist()
    yield from _about_duplicates(tokens)
    yield from _about_types(seen, tokens)
    if kind == _BYTE_PAIRS:
        yield from _about_merges(seen, tokens)


def _about_duplicates(tokens: list[str]) -> Iterator[Broken]:
    """Find duplicate tokens; llama.cpp distinguishes empty ones."""
    places: dict[str, int] = {}
    again: list[int] = []
    for index, token in enumerate(tokens):
        if token and places.setdefault(token, index) != index:
            again.append(index)
    if again:
        token = tokens[again[0]]
        found = {"first": places[token], "second": again[0], "others": len(again) - 1}
        yield at_key("token-duplicate", TOKENS, token=token, **found)


def _about_types(seen: Subject, tokens: list[str]) -> Iterator[Broken]:
    types = seen.metadata.get(TYPES, None)
    if not isinstance(types, np.ndarray) or types.dtype.kind not in "iu":
        return
    last = len(TYPE_NAMES) - 1
    strange = np.flatnonzero((types < 0) | (types > last))
    if strange.size:
        first = int(strange[0])
        found = {"count": strange.size, "index": first, "type": int(types[first])}
        yield at_key("token-type", TYPES, last=last, **found)
    for name in _BOUNDS:
        key = f"tokenizer.ggml.{name}_token_id"
        number = seen.number(key)
        if number is None or not 0 <= number < min(len(tokens), len(types)):
            continue
        if types[number] == _NORMAL:
            token = {"token": tokens[number], "type": TYPE_NAMES[_NORMAL]}
            yield at_key("token-id-type", key, number=number, **token)


def _about_merges(seen: Subject, tokens: list[str]) -> Iterator[Broken]:
    merges = seen.metadata.get(MERGES, None)
    if not isinstance(merges, Strings):
        return
    known = set(tokens)
    listed = merges.tolist()
    wrong = [index for index, merge in enumerate(listed) if not _is_known(merge, known)]
    if wrong:
        found = {"index": wrong[0], "merge": listed[wrong[0]]}
        yield at_key("merge-unknown", MERGES, count=len(wrong), total=len(listed), **found)


def _is_known(merge: str, tokens: set[str]) -> bool:
    """Whether both sides of a merge are tokens, and the merged text is too."""
    found = _MERGE.fullmatch(merge)
    return found is not None and tokens.issuperset((found[1], found[2], found[1] + found[2]))
