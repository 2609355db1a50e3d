"""Write the lists in docs from the code: `tools/write_indexes.py`.

docs/commands.md gets a table of all commands, docs/index.md a line in the section of each; both
show the short help. docs/check.md gets a row for each rule, docs/convert.md one for each difference
from llama.cpp's converter that tests/oracle knows. `pages()` returns the pages as they
should be.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
DOCS: Final = ROOT / "docs"
_ROW: Final = re.compile(r"^\| `([a-z0-9-]+)` \|.*\n", re.MULTILINE)
TABLE: Final = re.compile(r"(?<=\| command \| does \|\n\|---\|---\|\n)(\|.*\n)*")


DEPARTURES: Final = ROOT / "tests" / "oracle" / "departures.json"
DIFFERENCES: Final = re.compile(
    r"(?<=\| what \| llama\.cpp's converter \| ggufkit \| `--exactly` \|\n"
    r"\|---\|---\|---\|---\|\n)(\|.*\n)*"
)


class Command(NamedTuple):
    """A command: the section of the help that it belongs to, its name and its short help."""

    section: str
    name: str
    text: str


def commands() -> list[Command]:
    """Return all commands, in the order of their names."""
    from ggufkit.cli.app import SUMMARIES  # noqa: PLC0415 (of this tree, see below)

    rows = (
        Command(section, name, text[:1].lower() + text[1:].removesuffix("."))
        for section, texts in SUMMARIES.items()
        for name, text in texts.items()
    )
    return sorted(rows, key=lambda row: row.name)


def table(page: str) -> str:
    """Return docs/commands.md with a row for each command."""
    rows = [f"| [{command.name}]({command.name}.md) | {command.text} |\n" for command in commands()]
    return TABLE.sub("".join(rows), page, count=1)


def index(page: str) -> str:
    """Return docs/index.md with a line for each command at the top of its section."""
    for command in commands():
        page = re.sub(rf"- \[{command.name}\.md\].*\n", "", page)
    for command in reversed(commands()):
        line = f"- [{command.name}.md]({command.name}.md): {command.text}.\n"
        page = re.sub(rf"(?<=^### {command.section}\n\n)", line, page, flags=re.MULTILINE)
    return page


def differences(page: str) -> str:
    """Return docs/convert.md with a row for each difference from llama.cpp's converter."""
    rows = json.loads(DEPARTURES.read_text(encoding="utf-8"))
    columns = ("what", "converter", "ggufkit", "exactly")
    lines = (f"| {' | '.join(row[column] for column in columns)} |\n" for row in rows)
    return DIFFERENCES.sub(lambda _: "".join(lines), page, count=1)


def rules(page: str) -> str:
    """Return docs/check.md with a row for each rule; capitals stand for names in messages."""
    from ggufkit.rules.rules import all_rules  # noqa: PLC0415 (of this tree, see below)

    last = ""
    for name, rule in all_rules().items():
        row = f"| `{name}` | {rule.severity} | {rule.breaks} | {rule.pattern} |\n"
        if f"\n| `{name}` |" not in page:  # a new rule follows the one before it
            page = page.replace(last, last + row, 1)
        page = re.sub(rf"^\| `{name}` \|.*\n", lambda _, row=row: row, page, flags=re.MULTILINE)
        last = row
    return _ROW.sub(lambda match: match[0] if match[1] in all_rules() else "", page)


def pages() -> dict[Path, str]:
    """Return the right content of the pages with lists."""
    return {
        DOCS / "check.md": rules((DOCS / "check.md").read_text(encoding="utf-8")),
        DOCS / "commands.md": table((DOCS / "commands.md").read_text(encoding="utf-8")),
        DOCS / "convert.md": differences((DOCS / "convert.md").read_text(encoding="utf-8")),
        DOCS / "index.md": index((DOCS / "index.md").read_text(encoding="utf-8")),
    }


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "src"))
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
