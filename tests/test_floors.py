"""The house as docs/design.md draws it: a module imports from lower floors only."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "ggufkit"
MODULES = sorted(PACKAGE.rglob("*.py"))
IMPURE = {"io", "mmap", "os", "pathlib", "shutil", "subprocess", "tempfile", "threading", "time"}


def drawn_rooms() -> list[tuple[str, int]]:
    """Return each room with its floor, read from the drawing in docs/design.md."""
    drawing = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    rows = re.findall(r"^ {4}([ \d]\d)  ((?:\w+ )+) ", drawing, flags=re.MULTILINE)
    return [(room, int(floor)) for floor, names in rows for room in names.split()]


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[str]:
    """Yield each dotted name that a module imports, inside functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports relatively; write the whole name"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported_rooms(path: Path, rooms: set[str]) -> set[str]:
    """Return the rooms that a module imports; the package itself is the room of public names."""
    names = [name.split(".") for name in imported(path)]
    own = [name[1:2] for name in names if name[0] == "ggufkit"]
    return {room[0] if room and room[0] in rooms else "__init__" for room in own}


def test_every_room_is_drawn_once_and_every_drawn_room_exists():
    rooms = {room_of(path) for path in MODULES} | {"_native"}
    assert sorted(room for room, _ in drawn_rooms()) == sorted(rooms)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_module_imports_from_lower_floors_only(path):
    floors = dict(drawn_rooms())
    room = room_of(path)
    assert room in floors, f"{room} has no place in the drawing"
    others = imported_rooms(path, set(floors)) - {room}
    wrong = {other for other in others if floors[other] >= floors[room]}
    assert not wrong, f"{room} on floor {floors[room]} imports {sorted(wrong)}"


def test_layout_is_pure():
    roots = {name.split(".")[0] for name in imported(PACKAGE / "layout.py")}
    assert not roots & IMPURE
