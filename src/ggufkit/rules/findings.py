"""Findings: what was found in a file, made from the rules.

The parser collects findings and does not throw; `open` raises the first error among them as a
typed exception, `check` lists them all.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from ggufkit._version import __version__
from ggufkit.errors import FormatError, printable
from ggufkit.rules.rules import Authority, Rule, Severity, all_rules

MAX_FINDINGS: Final = 1000  # of one rule in one file: enough to read, and it bounds memory
SHOWN_CHARACTERS: Final = 128  # of a name in a message: more than any valid tensor name has


@dataclass(frozen=True)
class Finding:
    """One thing found in a file.

    `rule` is the rule's id, `severity` "error", "warning" or "note", `offset` the byte position
    in `path`, `breaks` whose rule it breaks: "GGUF" (the specification), "llama.cpp" (valid GGUF
    that llama.cpp refuses to load) or "" (neither).
    """

    rule: str
    severity: Severity
    offset: int
    message: str
    remedy: str
    breaks: Authority = ""
    path: Path | None = field(default=None, compare=False)

    def exception(self) -> FormatError:
        """Return the finding as a typed exception."""
        error = all_rules()[self.rule].error
        return error(
            self.message,
            remedy=self.remedy,
            rule=self.rule,
            offset=self.offset,
            path=str(self.path or ""),
        )

    def at(self, path: Path) -> Finding:
        """Return the same finding, placed in the file `path`."""
        return replace(self, path=path)


class Findings:
    """The findings of one file as they are made; beyond MAX_FINDINGS a rule is only counted."""

    def __init__(self) -> None:
        self._found: list[Finding] = []
        self._listed: Counter[str] = Counter()
        self._omitted: Counter[str] = Counter()

    def add(self, rule: str, offset: int, **details: object) -> None:
        """Note that `rule` is broken at byte `offset`, with the details that its message shows."""
        if self._listed[rule] < MAX_FINDINGS:
            self._listed[rule] += 1
            self._found.append(finding(rule, offset, **details))
        else:
            self._omitted[rule] += 1

    def worth_adding(self, rule: str, indexes: Sequence[int]) -> Sequence[int]:
        """Return the first of `indexes`, as many as can be listed, and count the others."""
        self._omitted[rule] += len(indexes[MAX_FINDINGS:])
        return indexes[:MAX_FINDINGS]

    def breaks(self, *rules: str) -> bool:
        """Whether one of `rules` is broken."""
        return any(rule in self._listed for rule in rules)

    def all(self) -> tuple[Finding, ...]:
        """Return the findings in order, and how many were left out."""
        omitted = (+self._omitted).items()
        return (*self._found, *(finding("omitted", 0, count=n, of=rule) for rule, n in omitted))


def finding(rule: str, offset: int, **details: object) -> Finding:
    """Make the finding of `rule` at byte `offset`; long names among `details` are cut short."""
    row = all_rules()[rule]
    texts = {key: _short(value) for key, value in details.items()}
    message = printable(row.message.format(**texts))
    return Finding(rule, row.severity, offset, message, row.remedy, row.breaks)


def _short(value: object) -> object:
    if isinstance(value, str) and len(value) > SHOWN_CHARACTERS:
        return value[:SHOWN_CHARACTERS] + "..."
    return value


def first_error(findings: Iterable[Finding]) -> Finding | None:
    """Return the finding that `open` would raise, if any."""
    return next((finding for finding in findings if finding.severity == "error"), None)


SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"


def as_sarif(findings: Iterable[Finding]) -> dict[str, Any]:
    """Return the document that holds one run with all rules and `findings`."""
    driver = {
        "name": "ggufkit",
        "version": __version__,
        "rules": [_rule(rule) for rule in all_rules().values()],
    }
    places = {rule: index for index, rule in enumerate(all_rules())}
    results = [_result(finding, places[finding.rule]) for finding in findings]
    run = {"tool": {"driver": driver}, "results": results, "columnKind": "unicodeCodePoints"}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.pattern},
        "fullDescription": {"text": rule.why},
        "help": {"text": f"{rule.remedy}."},
        "defaultConfiguration": {"level": rule.severity},
    }


def _result(finding: Finding, index: int) -> dict[str, Any]:
    name = finding.path or Path()
    lead = "file://" if name.is_absolute() else ""  # code hosts expect relative paths
    place = {
        "artifactLocation": {"uri": lead + quote(os.fsencode(name.as_posix()))},
        "region": {"byteOffset": finding.offset, "byteLength": 0},
    }
    return {
        "ruleId": finding.rule,
        "ruleIndex": index,
        "level": finding.severity,
        "message": {"text": printable(f"{finding.message}. {finding.remedy}.")},
        "locations": [{"physicalLocation": place}],
    }
