"""Findings of `check` on the page, with their remedies, and what `check --fix` would change."""

from __future__ import annotations

from typing import Any, Final

from ggufkit.checks.check import check
from ggufkit.edits.repair import REPAIRED, plan_repair
from ggufkit.errors import GGUFError
from ggufkit.models.remote_resolvers import is_remote
from ggufkit.rules.rules import explain
from ggufkit.view.edit_page import change_row
from ggufkit.view.page_model import PageModel

MAX_FINDINGS: Final = 500
_FACTS: Final = ("rule", "severity", "offset", "message", "remedy", "breaks")


def faults(page: PageModel) -> dict[str, Any]:
    """Return the findings of a model's headers, and the changes that repair some of them."""
    if not page.model.files:
        return {"findings": [], "total": 0, "changes": []}
    findings = check(page.name)
    return {
        "total": len(findings),
        "findings": [
            {
                **{name: getattr(finding, name) for name in _FACTS},
                "file": finding.path.name if finding.path else "",
                "explanation": explain(finding.rule).why,
                "fixable": finding.rule in REPAIRED,
            }
            for finding in findings[:MAX_FINDINGS]
        ],
        "changes": _repairs(page) if any(finding.rule in REPAIRED for finding in findings) else [],
    }


def _repairs(page: PageModel) -> list[dict[str, Any]]:
    if is_remote(page.name) or len(page.model.files) > 1:
        return []  # --fix changes one file on this machine
    try:
        planned = plan_repair(page.name)
    except (GGUFError, OSError):
        return []  # too broken to open, or not ours to change
    return list(map(change_row, planned.changes))
