"""Draw the packages of ggufkit by their imports: `tools/draw_packages.py` prints the drawing.

`--write` puts it into docs/design.md. A package is one floor above the highest package that it
imports; circular imports are an error.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGE: Final = ROOT / "src" / "ggufkit"
PAGE: Final = ROOT / "docs" / "design.md"
BEGIN: Final = "<!-- python tools/draw_packages.py --write -->\n"
END: Final = "<!-- end of the drawing -->\n"
VERBS: Final = "models.verbs"  # its methods import the functions of higher packages when called


class CircleError(Exception):
    """Imports are circular."""


def modules(package: Path = PACKAGE) -> dict[str, Path]:
    """Return the path of each module by its dotted name below `ggufkit`; `""` is the package."""
    paths = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return paths


def imported(path: Path) -> Iterator[str]:
    """Yield each dotted name that a module imports, inside functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise ValueError(f"{path}:{node.lineno} imports relatively; write the whole name")
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def arrows(known: dict[str, Path]) -> dict[str, set[str]]:
    """Return the modules that each module imports."""
    imports: dict[str, set[str]] = {}
    for name, path in known.items():
        names = () if name == VERBS else imported(path)
        own = [n.split(".")[1:] for n in names if n.split(".")[0] == "ggufkit"]
        imports[name] = {_module(parts, known) for parts in own} - {name}
    return imports


def _module(parts: list[str], known: dict[str, Path]) -> str:
    """Return the longest prefix that is a module; the rest is a name in it."""
    for stop in range(len(parts), 0, -1):
        if ".".join(parts[:stop]) in known:
            return ".".join(parts[:stop])
    return "_native" if parts[:1] == ["_native"] else ""


def room(name: str) -> str:
    """Return the package of a module; conversion's packages count separately."""
    parts = name.split(".")
    if parts[0] in {"", "__main__"} or not (PACKAGE / parts[0]).is_dir():
        return name or "__init__"
    inner = len(parts) > 1 and parts[0] == "conversion" and (PACKAGE / parts[0] / parts[1]).is_dir()
    return ".".join(parts[: 2 if inner else 1])


def between(known: dict[str, Path]) -> dict[str, set[str]]:
    """Return the packages that each package imports."""
    imports: dict[str, set[str]] = {}
    for name, others in arrows(known).items():
        imports.setdefault(room(name), set()).update(room(other) for other in others)
    return {name: others - {name} for name, others in imports.items()}


def floors(graph: dict[str, set[str]]) -> dict[str, int]:
    """Return the floor of each node: one above the highest that it imports; or CircleError."""
    done: dict[str, int] = {}

    def floor(node: str, path: tuple[str, ...]) -> int:
        if node in path:
            raise CircleError(" -> ".join((*path[path.index(node) :], node)))
        if node not in done:
            done[node] = 1 + max((floor(n, (*path, node)) for n in graph.get(node, ())), default=0)
        return done[node]

    for node in sorted(graph):
        floor(node, ())
    return done


def purpose(name: str) -> str:
    """Return the first sentence of a package's docstring."""
    known = modules()
    path = known["" if name == "__init__" else name]
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.split("\n", 1)[0].removesuffix(".")


def drawing() -> str:
    """Return the drawing, the top floor first."""
    graph = between(modules())
    levels = floors(graph)
    rows = sorted((n for n in levels if n != "_native"), key=lambda n: (-levels[n], n))
    wide = max(map(len, rows))
    lines = [f"    {levels[n]:2}  {n:{wide}}  {purpose(n)}" for n in rows]
    return "\n".join(["", *lines, "", ""])


def main() -> None:
    """Print the drawing, or write it into the page."""
    if sys.argv[1:] != ["--write"]:
        sys.stdout.write(drawing())
        return
    page = PAGE.read_text(encoding="utf-8")
    pattern = re.escape(BEGIN) + ".*?" + re.escape(END)
    drawn = BEGIN + drawing() + END
    PAGE.write_text(re.sub(pattern, lambda _: drawn, page, flags=re.DOTALL), encoding="utf-8")


if __name__ == "__main__":
    main()
