"""Findings as SARIF 2.1.0, the format that code hosts and editors read."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from ggufkit._version import __version__
from ggufkit.errors import printable
from ggufkit.rules.explain import explanations, pattern
from ggufkit.rules.findings import Finding
from ggufkit.rules.rules import RULES, Rule

SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_IDS: Final = {rule: index for index, rule in enumerate(RULES)}


def as_sarif(findings: Iterable[Finding]) -> dict[str, Any]:
    """Return the document that holds one run with all rules and `findings`."""
    driver = {
        "name": "ggufkit",
        "version": __version__,
        "rules": [_rule(rule) for rule in RULES.values()],
    }
    results = [_result(finding) for finding in findings]
    run = {"tool": {"driver": driver}, "results": results, "columnKind": "unicodeCodePoints"}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(rule: Rule) -> dict[str, Any]:
    why = explanations()[rule.id]
    return {
        "id": rule.id,
        "shortDescription": {"text": pattern(rule)},
        "fullDescription": {"text": why},
        "help": {"text": f"{rule.remedy}."},
        "defaultConfiguration": {"level": rule.severity},
    }


def _result(finding: Finding) -> dict[str, Any]:
    place = {
        "artifactLocation": {"uri": _uri(finding.path)},
        "region": {"byteOffset": finding.offset, "byteLength": 0},
    }
    return {
        "ruleId": finding.rule,
        "ruleIndex": _IDS[finding.rule],
        "level": finding.severity,
        "message": {"text": printable(f"{finding.message}. {finding.remedy}.")},
        "locations": [{"physicalLocation": place}],
    }


def _uri(path: str) -> str:
    """Return a path as a URI; a relative path stays relative, as code hosts expect."""
    name = Path(path)
    lead = "file://" if name.is_absolute() else ""
    return lead + quote(os.fsencode(name.as_posix()))
