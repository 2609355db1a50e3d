"""One name means one thing, and says what it is."""

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
    modules = defaultdict(list)
    for path in sorted(folder.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            for name in defined(node):
                modules[name.lstrip("_")].append(path.relative_to(folder).as_posix())
    return modules


def defined(node):
    """Yield the names in CapWords that a statement defines."""
    if isinstance(node, ast.ClassDef):
        yield node.name
    assigned = [*getattr(node, "targets", []), getattr(node, "target", None)]
    names = [target.id for target in assigned if isinstance(target, ast.Name)]
    yield from (name for name in names if CAP_WORDS.fullmatch(name))


@pytest.mark.parametrize("folder", ["src/ggufkit", "tests"])
def test_no_two_types_share_a_name(folder):
    shared = {name: where for name, where in types(ROOT / folder).items() if len(where) > 1}
    assert not shared


# Names that do not say what a variable is, and the only places where one of them is public.
VAGUE = {
    *("asked", "at", "each", "elsewhere", "found", "given", "gone", "held", "kept", "made"),
    *("named", "said", "shown", "strange", "told", "wanted"),
}
FOLDERS = ("benchmarks", "src/ggufkit", "tests", "tools")
PUBLIC = {("src/ggufkit/diffusion/architecture.py", "kept")}  # a word of the architecture files


def bound(node):
    """Yield the name that a node binds: a variable, an argument or a function."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.FunctionDef) and node.name.startswith("_"):
        yield node.name.lstrip("_")


def test_variables_are_named_by_what_they_hold():
    vague = {
        (path.relative_to(ROOT).as_posix(), name)
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in bound(node)
        if name in VAGUE
    }
    assert vague == PUBLIC


def test_variables_of_the_page_are_named_by_what_they_hold():
    words = "|".join(sorted(VAGUE))
    binding = re.compile(rf"(?:(?:const|let) |[(,] ?)({words})\b(?= = |, [\w{{]+\) => |\) => )")
    assert binding.search("files.map((each) => each.name)")
    vague = {
        (path.name, name)
        for path in (ROOT / "src/ggufkit/view/page").rglob("*.js")
        for name in binding.findall(path.read_text("utf-8"))
    }
    assert not vague
