"""The rules: what can be wrong with a GGUF file, and what to do about it, from `rules.toml`."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ggufkit import errors
from ggufkit.errors import FormatError, MissingKeyError, did_you_mean

Severity = Literal["error", "warning", "note"]
Authority = Literal["GGUF", "llama.cpp", ""]


@dataclass(frozen=True)
class Rule:
    """A rule: stable `id`, `severity`, who asks for it (`breaks`), texts, and its exception.

    `message` is a format string over the details of a finding; `why` explains at length.
    """

    id: str
    severity: Severity
    breaks: Authority
    message: str
    remedy: str
    why: str
    error: type[FormatError]

    @property
    def pattern(self) -> str:
        """The message with its placeholders in capitals."""
        return re.sub(r"\{(\w+)[^}]*\}", lambda detail: detail[1].upper(), self.message)


@functools.cache
def all_rules() -> Mapping[str, Rule]:
    """Return all rules by their ids: those about a file's structure, then about its content."""
    import ggufkit._toml as _toml  # noqa: PLC0415 (slow to import, and most runs need none)

    tables = _toml.loads(Path(__file__).with_name("rules.toml").read_text("utf-8"))
    remedies = {f"${name}": text for name, text in tables["remedies"].items()}
    rows = {**tables["structure"], **tables["content"]}
    for name, row in rows.items():
        row["remedy"] = remedies.get(row["remedy"], row["remedy"])
        row["error"] = getattr(errors, row.get("error", "FormatError"))
        rows[name] = Rule(id=name, **row)
    return rows


def explain(id: str) -> Rule:
    """Return a rule; MissingKeyError with the nearest one for an unknown id."""
    if id not in all_rules():
        remedy = did_you_mean(id, all_rules(), "docs/check.md lists all rules")
        raise MissingKeyError(f"unknown rule {id!r}", remedy=remedy)
    return all_rules()[id]
