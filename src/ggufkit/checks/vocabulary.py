"""Check a vocabulary: tokens, their types, special tokens, and merges."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from ggufkit.checks.model_view import NO_TOKENS, TOKENS, ModelView, Violation, at_key
from ggufkit.checks.requirements import names_in_llama_cpp
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


def about_tokenizer(view: ModelView) -> Iterator[Violation]:
    """Check the keys that llama.cpp reads from a tokenizer before any token."""
    kind, pre = view.metadata.get(KIND), view.text(PRE)
    if kind is None:
        yield Violation("tokenizer-missing", {"key": KIND}, key=TOKENS)
    if not isinstance(kind, str):
        return  # the wrong type is a separate finding
    if kind not in names_in_llama_cpp("tokenizers"):
        yield at_key("tokenizer-unknown", KIND, found=kind)
    if kind in _CUTTING and pre and pre not in names_in_llama_cpp("pre_tokenizers"):
        yield at_key("pre-unknown", PRE, found=pre)
    if kind not in _MERGING or pre == _WITHOUT_MERGES:
        return
    if MERGES not in view.metadata:
        yield Violation("merges-missing", {"kind": kind, "key": MERGES}, key=KIND)
    elif view.metadata.type_name(MERGES) != "array[string]":
        details = {"found": view.metadata.type_name(MERGES), "wanted": "array[string]"}
        yield at_key("key-kind", MERGES, **details)


def vocabulary_faults(view: ModelView) -> Iterator[Violation]:
    """Yield every rule that the tokens of a model break."""
    kind = view.text(KIND)
    tokens_value = view.metadata.get(TOKENS, None)
    if not isinstance(tokens_value, Strings):
        if kind and kind not in NO_TOKENS:
            yield Violation("tokens-missing", {"kind": kind, "key": TOKENS}, key=KIND)
        return
    tokens = tokens_value.tolist()
    yield from _about_duplicates(tokens)
    yield from _about_types(view, tokens)
    if kind == _BYTE_PAIRS:
        yield from _about_merges(view, tokens)


def _about_duplicates(tokens: list[str]) -> Iterator[Violation]:
    if len(set(tokens)) == len(tokens):
        return
    places: dict[str, int] = {}
    again = [i for i, token in enumerate(tokens) if token and places.setdefault(token, i) != i]
    if again:
        token = tokens[again[0]]
        details = {"first": places[token], "second": again[0], "others": len(again) - 1}
        yield at_key("token-duplicate", TOKENS, token=token, **details)


def _about_types(view: ModelView, tokens: list[str]) -> Iterator[Violation]:
    types = view.metadata.get(TYPES, None)
    if not isinstance(types, np.ndarray) or types.dtype.kind not in "iu":
        return
    last = len(TYPE_NAMES) - 1
    outside = np.flatnonzero((types < 0) | (types > last))
    if outside.size:
        first = int(outside[0])
        details = {"count": outside.size, "index": first, "type": int(types[first])}
        yield at_key("token-type", TYPES, last=last, **details)
    for name in _BOUNDS:
        key = f"tokenizer.ggml.{name}_token_id"
        number = view.number(key)
        if number is None or not 0 <= number < min(len(tokens), len(types)):
            continue
        if types[number] == _NORMAL:
            token = {"token": tokens[number], "type": TYPE_NAMES[_NORMAL]}
            yield at_key("token-id-type", key, number=number, **token)


def _about_merges(view: ModelView, tokens: list[str]) -> Iterator[Violation]:
    merges = view.metadata.get(MERGES, None)
    if not isinstance(merges, Strings):
        return
    vocabulary = set(tokens) - {""}
    listed = merges.tolist()
    wrong = [
        index
        for index, merge in enumerate(listed)  # two tokens with a space, which may begin the first
        if (space := merge.find(" ", 1)) < 0
        or (left := merge[:space]) not in vocabulary
        or (right := merge[space + 1 :]) not in vocabulary
        or left + right not in vocabulary
    ]
    if wrong:
        details = {"index": wrong[0], "merge": listed[wrong[0]]}
        yield at_key("merge-unknown", MERGES, count=len(wrong), total=len(listed), **details)
