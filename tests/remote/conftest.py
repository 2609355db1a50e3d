"""Short limits of time, so that faults cost little."""

from __future__ import annotations

import pytest

from ggufkit.remote import limits


@pytest.fixture(autouse=True)
def _quickly(monkeypatch):
    """Wait a little where users would wait long."""
    for name, seconds in (
        ("SILENT_SECONDS", 0.3),
        ("ANSWER_SECONDS", 0.6),
        ("SLOW_SECONDS", 0.6),
        ("FIRST_WAIT", 0.01),
        ("LONGEST_WAIT", 0.05),
    ):
        monkeypatch.setattr(limits, name, seconds)
