"""Findings of `check` on the page, with their remedies, and what `check --fix` would change."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from ggufkit.checks.check import check
from ggufkit.edits.changes import Change
from ggufkit.edits.repair import REPAIRED, plan_repair
from ggufkit.errors import GGUFError
from ggufkit.models.elsewhere import is_elsewhere
from ggufkit.rules.explain import explain
from ggufkit.view.metadata_page import short_value
from ggufkit.view.plain_values import cut
from ggufkit.view.shown_model import ShownModel

MAX_FINDINGS: Final = 500


def faults(shown: ShownModel) -> dict[str, Any]:
    """Return the findings of a model's headers, and the changes that repair some of them."""
    if not shown.model.files:
        return {"findings": [], "total": 0, "changes": []}
    found = check(shown.name)
    return {
        "total": len(found),
        "findings": [
            {
                "rule": each.rule,
                "severity": each.severity,
                "offset": each.offset,
                "message": each.message,
                "remedy": each.remedy,
                "breaks": each.breaks,
                "file": Path(each.path).name,
                "explanation": explain(each.rule),
                "fixable": each.rule in REPAIRED,
            }
            for each in found[:MAX_FINDINGS]
        ],
        "changes": _repairs(shown) if any(each.rule in REPAIRED for each in found) else [],
    }


def _repairs(shown: ShownModel) -> list[dict[str, Any]]:
    if is_elsewhere(shown.name) or len(shown.model.files) > 1:
        return []  # --fix changes one file on this machine
    try:
        planned = plan_repair(shown.name)
    except (GGUFError, OSError):
        return []  # too broken to open, or not ours to change
    return [_change(change) for change in planned.changes]


def _change(change: Change) -> dict[str, Any]:
    return {
        "kind": change.kind,
        "key": cut(change.key),
        "before_type": change.before_type,
        "after_type": change.after_type,
        "before": short_value(change.before),
        "after": short_value(change.after),
    }
