"""The files that CONTRIBUTING.md names for an addition are enough: a copy of the tree gets each."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import add_examples  # noqa: E402 (a tool, not a package)

LEFT_OUT = shutil.ignore_patterns("__pycache__", ".*", "build", "*.so.*")
# How many files an addition may touch by hand.
MOST_FILES = {"command": 4, "rule": 5, "architecture": 3, "type": 4}
TESTS = {
    "command": (
        *("tests/cli/commands/test_keys.py", "tests/docs/test_commands.py"),
        *("tests/docs/test_docs.py", "tests/cli/test_app.py", "tests/whole/test_untrusted.py"),
        "tests/whole/test_faults.py::test_every_command_that_writes_meets_faults",
    ),
    "rule": ("tests/rules", "tests/docs/test_docs.py"),
    "architecture": (
        "tests/conversion/architecture/test_new.py",
        "tests/conversion/architecture/test_architecture.py",
    ),
}
NAMED = {"command": "keys or every or index or lists", "rule": "blank or every or page or lists"}


@pytest.fixture
def copy(tmp_path):
    """Return a copy of the tree as it is."""
    for name in ("src", "tests", "docs", "tools", "native"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=LEFT_OUT)
    for path in (*ROOT.glob("*.md"), ROOT / "pyproject.toml"):
        shutil.copy(path, tmp_path)
    shutil.copytree(ROOT / "benchmarks", tmp_path / "benchmarks", ignore=LEFT_OUT)
    return tmp_path


def run(folder, *words):
    environment = os.environ | {"PYTHONPATH": str(folder / "src")}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.matrix
@pytest.mark.parametrize("kind", TESTS)
def test_addition_passes_the_tests_that_concern_it(copy, kind):
    touched = add_examples.add(kind, copy)
    assert len(touched) <= MOST_FILES[kind]
    run(copy, "tools/write_indexes.py")
    chosen = ("-k", NAMED[kind]) if kind in NAMED else ()
    run(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen, *TESTS[kind])
    run(copy, "-m", "ruff", "check", "--quiet", "src", "tests")


HEADINGS = {
    "command": "Add a command",
    "rule": "Add a check rule",
    "architecture": "Add an architecture",
    "type": "Add a tensor type",
}


@pytest.mark.parametrize("kind", HEADINGS)
def test_contributing_names_each_file_that_an_addition_touches(copy, kind):
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = page.split(f"### {HEADINGS[kind]}\n")[1].split("\n#")[0]
    named = [re.escape(each).replace("NAME", r"\w+") for each in re.findall(r"`([^`]+)`", section)]
    for path in add_examples.add(kind, copy):
        assert any(re.fullmatch(each, path) for each in named), path


def test_tensor_type_of_the_page_is_a_row_and_a_file(copy):
    assert len(add_examples.add("type", copy)) <= MOST_FILES["type"]
    assert "struct Q8_H" in (copy / "native/quants/types/q8_h.hpp").read_text(encoding="utf-8")
    code = "from ggufkit.format.types import tensor_type; assert tensor_type('Q8_H').id == 43"
    run(copy, "-c", code)
