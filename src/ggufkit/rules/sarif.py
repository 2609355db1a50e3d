"""Findings as SARIF 2.1.0, the format that code hosts and editors read."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from ggufkit._version import __version__
from ggufkit.errors import printable
from ggufkit.rules.findings import Finding
from ggufkit.rules.rules import Rule, all_rules

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
