"""Explain rules at length: what stands behind each, for people who meet it."""

from __future__ import annotations

import difflib
import functools
import re
import sys
from importlib import resources

from ggufkit.errors import MissingKeyError
from ggufkit.rules import RULES, Rule


def explain(id: str) -> str:
    """Return why there is a rule; MissingKeyError with the nearest one for an unknown id."""
    if id not in RULES:
        near = difflib.get_close_matches(id, RULES, 1)
        remedy = f"Did you mean {near[0]!r}?" if near else "docs/check.md lists them all"
        raise MissingKeyError(f"there is no rule {id!r}", remedy=remedy)
    return explanations()[id]


def pattern(rule: Rule) -> str:
    """Return the message of a rule, what it names in capitals."""
    return re.sub(r"\{(\w+)[^}]*\}", lambda detail: detail[1].upper(), rule.message)


@functools.cache
def explanations() -> dict[str, str]:
    """Return the explanations of all rules by their ids."""
    if sys.version_info >= (3, 11):
        import tomllib  # noqa: PLC0415 (dear, and most runs need none)
    else:
        import tomli as tomllib  # noqa: PLC0415
    text = (resources.files("ggufkit") / "explanations.toml").read_text("utf-8")
    return {rule: str(why) for rule, why in tomllib.loads(text).items()}
