"""Packages import each other without circles, and the drawing in docs/design.md is current."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import draw_packages  # noqa: E402 (a tool, not a package)

MODULES = draw_packages.modules()
PACKAGE = draw_packages.PACKAGE
IMPURE = {"io", "mmap", "os", "pathlib", "shutil", "subprocess", "tempfile", "threading", "time"}
MOST_MODULES = 15
TABLES = {"cli/commands"}  # one module for each command


def test_packages_do_not_import_in_a_circle():
    assert draw_packages.floors(draw_packages.between(MODULES))


def test_modules_do_not_import_in_a_circle():
    assert draw_packages.floors(draw_packages.arrows(MODULES))


def test_only_the_command_imports_the_public_module():
    others = {
        name: [other for other in imported if other == ""]
        for name, imported in draw_packages.arrows(MODULES).items()
        if name.split(".")[0] not in {"cli", "__main__"}
    }
    assert not {name for name, imported in others.items() if imported}


def test_drawing_in_design_is_current():
    page = draw_packages.PAGE.read_text(encoding="utf-8")
    drawn = page.split(draw_packages.BEGIN)[1].split(draw_packages.END)[0]
    assert drawn == draw_packages.drawing(), "run `python tools/draw_packages.py --write`"


def test_path_to_a_kernel_in_design_names_functions_that_exist():
    text = (ROOT / "docs/design.md").read_text(encoding="utf-8")
    steps = re.findall(r"^\| `([\w/]+\.\w+): (?:(\w+)\.)?(\w+)` \|", text, re.MULTILINE)
    assert 10 <= len(steps) <= 14
    for file, owner, name in steps:
        folder = ROOT if file.startswith("native/") else ROOT / "src/ggufkit"
        code = (folder / file).read_text(encoding="utf-8")
        is_defined = re.search(rf"^[\w\s:<>*&]*\b{name}\(", code, re.MULTILINE)
        assert is_defined, f"{file}: {name}"
        assert not owner or f"class {owner}" in code


def test_finds_a_circle_of_imports():
    with pytest.raises(draw_packages.CircleError, match="a -> b -> a"):
        draw_packages.floors({"a": {"b"}, "b": {"a"}})


@pytest.mark.parametrize(
    "folder", sorted({path.parent for path in MODULES.values()}), ids=lambda path: path.name
)
def test_each_folder_has_few_modules_and_a_docstring(folder):
    place = folder.relative_to(PACKAGE).as_posix()
    files = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
    assert len(files) <= MOST_MODULES or place in TABLES
    text = (folder / "__init__.py").read_text(encoding="utf-8")
    assert text.startswith('"""')
    assert len(text.split('"""')[1].strip().splitlines()) >= 3


def test_layout_imports_nothing_that_reads_or_writes():
    roots = {name.split(".")[0] for name in draw_packages.imported(MODULES["output.layout"])}
    assert not roots & IMPURE
