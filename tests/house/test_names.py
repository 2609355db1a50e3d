"""One name means one thing: no two classes share a name."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def classes(folder):
    """Return the modules that define each class at their top level, by its name."""
    found = defaultdict(list)
    for path in sorted(folder.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                found[node.name.lstrip("_")].append(path.relative_to(folder).as_posix())
    return found


@pytest.mark.parametrize("folder", ["src/ggufkit", "tests"])
def test_no_two_classes_share_a_name(folder):
    shared = {name: where for name, where in classes(ROOT / folder).items() if len(where) > 1}
    assert not shared
