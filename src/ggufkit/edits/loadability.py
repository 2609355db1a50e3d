"""What keeps an edited model from loading in llama.cpp, told before it is written.

A rule looks at the model alone; what was wrong before an edit is no obstacle to it. The rules are
those of `consistency`, and what may not change at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ggufkit.checks.consistency import LOADING
from ggufkit.checks.subject import ARCHITECTURE, TOKENS, Subject
from ggufkit.format.encoding import CANONICAL
from ggufkit.format.types import SPLIT_TYPES
from ggufkit.model.model import Model
from ggufkit.rules.findings import finding

ALIGNMENT: Final = "general.alignment"
_NEEDED: Final = ("tokenizer.ggml.model", TOKENS, ARCHITECTURE)


def obstacles(before: Model, after: Model) -> list[str]:
    """Return what an edit breaks, one sentence each; nothing where the model still loads."""
    old, new = Subject.of(before), Subject.of(after)
    known = set(_wrong_with(old))
    broken = [sentence for sentence in _wrong_with(new) if sentence not in known]
    return [*_lost(old, new), *broken]


def _lost(old: Subject, new: Subject) -> Iterator[str]:
    """Look at what may not change or go at all."""
    for key in (ALIGNMENT, *SPLIT_TYPES):
        if _bytes(old, key) != _bytes(new, key) and not _is_set_right(key, old, new):
            why = "all tensors move" if key == ALIGNMENT else "the shards no longer fit together"
            yield f"{key} changes, so that {why}"
    for key in (*_NEEDED, *old.hyperparameters):
        if key in old.metadata and key not in new.metadata:
            yield f"{key} is removed, but llama.cpp may need it"


def _is_set_right(key: str, old: Subject, new: Subject) -> bool:
    """Whether a key about shards has the same number, now of the type that llama.cpp insists on."""
    number = new.number(key)
    if number is None or key not in SPLIT_TYPES or number != old.number(key):
        return False
    return new.metadata.type_name(key) == SPLIT_TYPES[key].name.lower()


def _bytes(seen: Subject, key: str) -> bytes:
    return seen.metadata.arranged([key] if key in seen.metadata else []).encode(CANONICAL)


def _wrong_with(seen: Subject) -> Iterator[str]:
    for rule in LOADING:
        for broken in rule(seen):
            yield finding(broken.rule, 0, **broken.details).message
    for key in seen.metadata:
        if seen.metadata.type_name(key) == "array[array]":
            yield f"{key} is an array of arrays, and llama.cpp refuses those"
