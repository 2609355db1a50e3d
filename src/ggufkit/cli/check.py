"""`ggufkit check`: what is wrong with a file."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import click

import ggufkit
from ggufkit.cli.output import counted, emit, examples
from ggufkit.errors import printable
from ggufkit.findings import Finding, finding

_BREAKS: Final = {"GGUF": "breaks the specification", "llama.cpp": "llama.cpp refuses it", "": ""}
_COLOURS: Final = {"error": "red", "warning": "yellow", "note": "blue"}


@click.command(
    "check",
    short_help="Find what is wrong with files.",
    epilog=examples(
        "ggufkit check model.gguf",
        "ggufkit check *.gguf",
        "ggufkit check model.gguf --json | jq '.[0].findings[].rule'",
    ),
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.pass_context
def command(ctx: click.Context, files: tuple[str, ...], *, as_json: bool) -> None:
    """Find everything that is wrong with each FILE, and say what to do about it.

    A finding is one line: file, offset in bytes, severity, message, rule, and what to do. An
    error breaks the GGUF specification; what only llama.cpp refuses is a warning and says so.
    The exit code is 1 if any file has an error.
    """
    checked = {file: _check(file) for file in dict.fromkeys(files)}
    if as_json:
        emit([_plain(file, findings) for file, findings in checked.items()])
    else:
        for file, findings in checked.items():
            _print(file, findings)
    if any(found.severity == "error" for findings in checked.values() for found in findings):
        ctx.exit(1)


def _check(file: str) -> list[Finding]:
    try:
        return ggufkit.check(file)
    except OSError as error:  # which must not keep the other files from being checked
        return [finding("unreadable", 0, reason=error.strerror or str(error)).at(file)]


def verdict(findings: list[Finding]) -> str:
    """Return in words what a file with these findings is to GGUF and to llama.cpp."""
    errors = [found for found in findings if found.severity == "error"]
    if any(found.breaks for found in errors):
        return "broken: it breaks the specification"
    if errors:
        return "not readable"
    if any(found.breaks == "llama.cpp" for found in findings):
        return "valid GGUF that llama.cpp refuses"
    return "valid GGUF"


def _print(file: str, findings: list[Finding]) -> None:
    for found in findings:
        severity = click.style(found.severity, fg=_COLOURS[found.severity], bold=True)
        place = printable(f"{found.path or file}:{found.offset}")
        rule = ", ".join(filter(None, (found.rule, _BREAKS[found.breaks])))
        text = printable(f"{found.message} [{rule}]. {found.remedy}.")
        click.echo(f"{place}: {severity}: {text}")
    held: Counter[str] = Counter(found.severity for found in findings)
    counts = ", ".join(counted(held[severity], severity) for severity in _COLOURS)
    click.echo(f"{printable(file)}: {verdict(findings)} ({counts})")


def _plain(file: str, findings: list[Finding]) -> dict[str, Any]:
    return {"file": file, "verdict": verdict(findings), "findings": [vars(f) for f in findings]}
