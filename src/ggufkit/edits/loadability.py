"""Find why llama.cpp would not load an edited model, before the edit is written.

Faults that the model had before the edit do not count. It uses the rules of `check` about
llama.cpp, and a list of keys that must not change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ggufkit.checks.chat_template import template_faults, template_keys
from ggufkit.checks.consistency import LOADING, inconsistencies
from ggufkit.checks.model_view import ARCHITECTURE, TOKENS, ModelView, Violation, at_key
from ggufkit.checks.vocabulary import vocabulary_faults
from ggufkit.format.encoding import CANONICAL
from ggufkit.format.types import SPLIT_TYPES
from ggufkit.models.model import Model
from ggufkit.rules.findings import finding
from ggufkit.rules.rules import all_rules

ALIGNMENT: Final = "general.alignment"
BEYOND: Final = "token-id-range"  # llama.cpp accepts these, but nobody makes them on purpose
_NEEDED: Final = ("tokenizer.ggml.model", TOKENS, ARCHITECTURE)


def obstacles(before: Model, after: Model) -> list[str]:
    """Return one sentence for each thing that an edit breaks; none if the model still loads."""
    old, new = ModelView(before), ModelView(after)
    broken = [*_newly_refused(old, new), *_broken_templates(old, new)]
    return [*_newly_missing(old, new), *_sentences(broken)]


def refusals(before: Model, after: Model) -> list[str]:
    """Return the reasons why llama.cpp refuses the new model, if it accepted the old one."""
    return list(_sentences(_newly_refused(ModelView(before), ModelView(after))))


def _newly_refused(old: ModelView, new: ModelView) -> list[Violation]:
    old_places = _refused(old)
    return [broken for place, broken in _refused(new).items() if place not in old_places]


def _newly_missing(old: ModelView, new: ModelView) -> Iterator[str]:
    for key in (ALIGNMENT, *SPLIT_TYPES):
        if _bytes(old, key) != _bytes(new, key) and not _is_set_right(key, old, new):
            why = "all tensors move" if key == ALIGNMENT else "the shards no longer fit together"
            yield f"{key} changes, so that {why}"
    for key in (*_NEEDED, *old.hyperparameters):
        if key in old.metadata and key not in new.metadata:
            yield f"{key} is removed, but llama.cpp may need it"


def _is_set_right(key: str, old: ModelView, new: ModelView) -> bool:
    """Whether a key about shards keeps its number and now has the type that llama.cpp needs."""
    number = new.number(key)
    if number is None or key not in SPLIT_TYPES or number != old.number(key):
        return False
    return new.metadata.type_name(key) == SPLIT_TYPES[key].name.lower()


def _bytes(view: ModelView, key: str) -> bytes:
    return view.metadata.arranged([key] if key in view.metadata else []).encode(CANONICAL)


def _refused(view: ModelView) -> dict[tuple[str, str, str], Violation]:
    """Return the faults that llama.cpp refuses, by rule and place."""
    violations = [broken for rule in LOADING for broken in rule(view)]
    if view.is_language_model:
        violations += [*inconsistencies(view), *vocabulary_faults(view)]
    for key in view.metadata:
        if view.metadata.type_name(key) == "array[array]":
            violations.append(at_key("array-nested", key))
    return {
        (broken.rule, broken.key, broken.tensor or str(broken.details.get("name", ""))): broken
        for broken in violations
        if all_rules()[broken.rule].breaks == "llama.cpp" or broken.rule == BEYOND
    }


def _broken_templates(old: ModelView, new: ModelView) -> Iterator[Violation]:
    """Yield the faults of chat templates that the edit changes."""
    changed = [key for key in template_keys(new) if _bytes(old, key) != _bytes(new, key)]
    for broken in template_faults(new, changed) if changed else ():
        if all_rules()[broken.rule].severity != "note":
            yield broken


def _sentences(violations: list[Violation]) -> Iterator[str]:
    """Yield a sentence for each rule: its first case, and the number of further cases."""
    for rule in dict.fromkeys(broken.rule for broken in violations):
        first, *others = [broken for broken in violations if broken.rule == rule]
        more = f" (and {len(others)} more)" if others else ""
        yield finding(rule, 0, **first.details).message + more
