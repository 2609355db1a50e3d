"""One name means one thing: no two classes, or aliases of types, share a name."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CAP_WORDS = re.compile(r"_?[A-Z]\w*[a-z]\w*")


def types(folder):
    """Return the modules that define each class or alias at their top level, by its name."""
    found = defaultdict(list)
    for path in sorted(folder.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            for name in defined(node):
                found[name.lstrip("_")].append(path.relative_to(folder).as_posix())
    return found


def defined(node):
    """Yield the names in CapWords that a statement defines."""
    if isinstance(node, ast.ClassDef):
        yield node.name
    assigned = [*getattr(node, "targets", []), getattr(node, "target", None)]
    names = [each.id for each in assigned if isinstance(each, ast.Name)]
    yield from (name for name in names if CAP_WORDS.fullmatch(name))


@pytest.mark.parametrize("folder", ["src/ggufkit", "tests"])
def test_no_two_types_share_a_name(folder):
    shared = {name: where for name, where in types(ROOT / folder).items() if len(where) > 1}
    assert not shared
