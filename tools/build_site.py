"""Build the documentation site: the pages of docs/, a landing page and the reference.

    python tools/build_site.py [MODEL]

writes build/site/html. The pages keep their places, so that their links work. The reference is made
from docstrings and from the help of the commands. MODEL is what the landing page inspects.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click

import ggufkit
from ggufkit.cli.app import app

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "site"
BUILD = ROOT / "build" / "site"
ORPHAN = "---\norphan: true\n---\n"  # for a page that no navigation names
WIDTH = 88  # of what commands print
SHOWN_LINES = 16  # of what inspect prints
TOP = ("README*.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE")
MORE = ("benchmarks/*.md", "benchmarks/*.py", "benchmarks/results/*.md")  # what pages link to
TITLES = {
    "Functions": "function",
    "Classes": "class",
    "Errors and warnings": "exception",
    "Modules": "module",
    "Values": "data",
}
REFERENCE = ("reference/python", "reference/commands")
TREE = """```{{toctree}}
:hidden:
:caption: {caption}

{pages}
```
"""


def main(model: str | None = None) -> int:
    """Assemble the pages and run Sphinx; return its exit code."""
    source = BUILD / "source"
    shutil.rmtree(BUILD, ignore_errors=True)
    copy_pages(source)
    write_reference(source / "reference")
    landing = (SITE / "index.md").read_text("utf-8")
    landing = landing.replace("{inspect}", inspected(model)).replace("{toctree}", trees())
    (source / "index.md").write_text(landing, "utf-8")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    return subprocess.run([*command, source, BUILD / "html"], check=False).returncode


def copy_pages(source: Path) -> None:
    """Copy what is a page, or what a page links to."""
    (source / "_static").mkdir(parents=True)
    shutil.copy(SITE / "conf.py", source)
    shutil.copy(SITE / "site.css", source / "_static")
    shutil.copytree(ROOT / "docs", source / "docs")
    for pattern in (*TOP, *MORE):
        for path in ROOT.glob(pattern):
            target = source / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    pages = trees()
    for path in source.rglob("*.md"):
        page = path.relative_to(source).with_suffix("").as_posix()
        if not re.search(rf"(^|<){re.escape(page)}>?$", pages, re.MULTILINE):
            path.write_text(ORPHAN + path.read_text("utf-8"), "utf-8")


def write_reference(folder: Path) -> None:
    """Write a page of all public names and one of all commands."""
    folder.mkdir()
    lines = ["# Python reference", "", "Every public name, from its docstring.", ""]
    kinds = {name: kind(getattr(ggufkit, name)) for name in sorted(ggufkit.__all__)}
    for title, kind_of_section in TITLES.items():
        lines += [f"## {title}", ""]
        for name in (
            name for name, kind_of_name in kinds.items() if kind_of_name == kind_of_section
        ):
            lines += [
                f"### {name}",
                "",
                "```{eval-rst}",
                *directive(name, kind_of_section),
                "```",
                "",
            ]
    (folder / "python.md").write_text("\n".join(lines), "utf-8")
    (folder / "commands.md").write_text("\n".join(helps()), "utf-8")


def helps() -> Iterator[str]:
    """Yield the lines of the page of commands: what --help prints."""
    yield "# Command reference\n\nWhat `--help` prints, for every command.\n"
    for title, command in commands("ggufkit", app):
        settings = app.context_settings | {"max_content_width": WIDTH}
        shell = click.Context(command, info_name=title, **settings)
        level = "##" if title.count(" ") < 2 else "###"
        yield f"{level} {title}\n\n```text\n{command.get_help(shell)}\n```\n"


def commands(title: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Yield a command and all below it, each with its full name."""
    yield title, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                yield from commands(f"{title} {name}", below)


def kind(value: object) -> str:
    """Return what a public name is, in the words of autodoc."""
    if isinstance(value, type):
        return "exception" if issubclass(value, Exception) else "class"
    if isinstance(value, ModuleType):
        return "module"
    return "function" if callable(value) else "data"


def directive(name: str, of_kind: str) -> list[str]:
    """Return the directive of autodoc for a public name."""
    if of_kind == "module":  # its classes are public names too
        return [f".. automodule:: {getattr(ggufkit, name).__name__}", "   :no-index:"]
    return [f".. auto{of_kind}:: ggufkit.{name}"]


def inspected(model: str | None) -> str:
    """Return the first lines that `ggufkit inspect` prints about a model."""
    if model is None:
        return "ggufkit inspect --help"
    command = [sys.executable, "-m", "ggufkit", "inspect", Path(model).name]
    environment = os.environ | {"NO_COLOR": "1", "COLUMNS": "90"}
    done = subprocess.run(command, cwd=Path(model).parent, env=environment, check=True,
                          capture_output=True, text=True)  # fmt: skip
    lines = [line if len(line) < WIDTH else f"{line[:WIDTH]}…" for line in done.stdout.splitlines()]
    return "\n".join([*lines[:SHOWN_LINES], "…"])


def trees() -> str:
    """Return the navigation: the sections of docs/index.md, then the reference."""
    text = (ROOT / "docs" / "index.md").read_text("utf-8")
    sections = []
    for section in text.split("\n## ")[1:]:
        caption, _, body = section.partition("\n")
        links = re.findall(r"\]\(([^)#]+\.md)\)", body)
        pages = [os.path.normpath(f"docs/{link}").removesuffix(".md") for link in links]
        sections.append(TREE.format(caption=caption, pages="\n".join(pages)))
    sections[0] = sections[0].replace("\nREADME\n", "\nThe README <README>\n")
    pages = [*REFERENCE, "CHANGELOG", "SECURITY"]
    sections.append(TREE.format(caption="Names and options", pages="\n".join(pages)))
    return "\n".join(sections)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
