"""The public names and signatures are the recorded ones."""

from __future__ import annotations

import runpy
from pathlib import Path

SURFACE = runpy.run_path(str(Path(__file__).with_name("public_surface.py")))


def test_public_surface_is_the_recorded_one():
    recorded = SURFACE["RECORD"].read_text(encoding="utf-8").splitlines()
    current = SURFACE["surface"]()
    changed = [f"- {line}" for line in recorded if line not in current]
    changed += [f"+ {line}" for line in current if line not in recorded]
    assert not changed, (
        "run `python tests/house/public_surface.py --write`, keep old names (docs/stability.md) "
        "and add a line to CHANGELOG.md"
    )
