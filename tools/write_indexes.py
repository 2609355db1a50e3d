"""Write the lists in docs from the code: `tools/write_indexes.py`.

docs/commands.md gets a table of all commands, docs/index.md a line in the section of each; both
show the short help. docs/check.md gets a row for each rule. `pages()` returns the pages as they
should be.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
DOCS: Final = ROOT / "docs"
_ROW: Final = re.compile(r"^\| `([a-z0-9-]+)` \|.*\n", re.MULTILINE)
TABLE: Final = re.compile(r"(?<=\| command \| does \|\n\|---\|---\|\n)(\|.*\n)*")


class Command(NamedTuple):
    """A command: the section of the help that it belongs to, its name and its short help."""

    section: str
    name: str
    text: str


def commands() -> list[Command]:
    """Return all commands, in the order of their names."""
    from ggufkit.cli.app import COMMANDS, summary  # noqa: PLC0415 (of this tree, see below)

    entries = ((name, *summary(name)) for name in COMMANDS)
    return [
        Command(section, name, text[:1].lower() + text[1:].removesuffix("."))
        for name, section, text in entries
    ]


def table(page: str) -> str:
    """Return docs/commands.md with a row for each command."""
    rows = [f"| [{each.name}]({each.name}.md) | {each.text} |\n" for each in commands()]
    return TABLE.sub("".join(rows), page, count=1)


def index(page: str) -> str:
    """Return docs/index.md with a line for each command at the top of its section."""
    for each in commands():
        page = re.sub(rf"- \[{each.name}\.md\].*\n", "", page)
    for each in reversed(commands()):
        line = f"- [{each.name}.md]({each.name}.md): {each.text}.\n"
        page = re.sub(rf"(?<=^## {each.section}\n\n)", line, page, flags=re.MULTILINE)
    return page


def rules(page: str) -> str:
    """Return docs/check.md with a row for each rule; capitals stand for names in messages."""
    from ggufkit.rules.explain import pattern  # noqa: PLC0415 (of this tree, see below)
    from ggufkit.rules.rules import RULES  # noqa: PLC0415

    last = ""
    for name, rule in RULES.items():
        row = f"| `{name}` | {rule.severity} | {rule.breaks} | {pattern(rule)} |\n"
        if f"\n| `{name}` |" not in page:  # a new rule follows the one before it
            page = page.replace(last, last + row, 1)
        page = re.sub(rf"^\| `{name}` \|.*\n", lambda _, row=row: row, page, flags=re.MULTILINE)
        last = row
    return _ROW.sub(lambda found: found[0] if found[1] in RULES else "", page)


def pages() -> dict[Path, str]:
    """Return the right content of the pages with lists."""
    return {
        DOCS / "check.md": rules((DOCS / "check.md").read_text(encoding="utf-8")),
        DOCS / "commands.md": table((DOCS / "commands.md").read_text(encoding="utf-8")),
        DOCS / "index.md": index((DOCS / "index.md").read_text(encoding="utf-8")),
    }


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "src"))
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
