"""Explain each rule at length for people who meet it."""

from __future__ import annotations

import difflib
import functools
import re
from importlib import resources

from ggufkit.errors import MissingKeyError
from ggufkit.rules.rules import RULES, Rule


def explain(id: str) -> str:
    """Return why a rule exists; MissingKeyError with the nearest one for an unknown id."""
    if id not in RULES:
        near = difflib.get_close_matches(id, RULES, 1)
        remedy = f"Did you mean {near[0]!r}?" if near else "docs/check.md lists all rules"
        raise MissingKeyError(f"unknown rule {id!r}", remedy=remedy)
    return explanations()[id]


def pattern(rule: Rule) -> str:
    """Return the message of a rule with its placeholders in capitals."""
    return re.sub(r"\{(\w+)[^}]*\}", lambda detail: detail[1].upper(), rule.message)


@functools.cache
def explanations() -> dict[str, str]:
    """Return the explanations of all rules by their ids."""
    import ggufkit._toml as _toml  # noqa: PLC0415 (slow to import, and most runs need none)

    text = (resources.files("ggufkit.rules") / "explanations.toml").read_text("utf-8")
    return {rule: str(why) for rule, why in _toml.loads(text).items()}
