"""`ggufkit check`: report what is wrong with a file."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import click

import ggufkit
from ggufkit.checks.check import CheckOptions, check_models
from ggufkit.cli import streams
from ggufkit.cli.model_argument import MODEL
from ggufkit.cli.options import flag, new_command, option, threads_option
from ggufkit.cli.output import counted, emit, paged
from ggufkit.cli.pipes import refuse_pipe
from ggufkit.cli.progress import progress_bar
from ggufkit.errors import MissingKeyError, printable
from ggufkit.remote.url import UrlPath
from ggufkit.rules.findings import Finding, finding
from ggufkit.rules.rules import all_rules, explain

_BREAKS: Final = {"GGUF": "breaks the specification", "llama.cpp": "llama.cpp refuses it", "": ""}
_COLOURS: Final = {"error": "red", "warning": "yellow", "note": "blue"}
_SEVERITIES: Final = tuple(_COLOURS)


def _complete_rule(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    return [rule for rule in all_rules() if rule.startswith(incomplete)]


@new_command(
    "check",
    "ggufkit check model.gguf",
    "ggufkit check *.gguf --data",
    "ggufkit check model.gguf --fix --dry-run",
    "ggufkit check --explain token-rows",
    "ggufkit check model.gguf --json | jq '.[0].findings[].rule'",
    "ggufkit check models/*.gguf --sarif --fail-on warning > check.sarif",
)
@click.argument("files", metavar="FILE...", nargs=-1, type=MODEL)
@flag("--data", "Also read tensor data and report NaN, infinities and broken blocks.")
@flag("--names", "Also report names outside the naming convention.")
@flag("--fix", "First repair what is safe to repair, in place.")
@flag("--dry-run", "With --fix: show what would change.")
@option("--explain rule RULE", "Explain a rule; check nothing.", shell_complete=_complete_rule)
@option(
    "--fail-on",
    "Lowest severity that makes the exit code 1.",
    type=click.Choice(_SEVERITIES),
    default="error",
)
@flag("--json as_json", "Print the findings as JSON.")
@flag("--sarif", "Print the findings as SARIF 2.1.0.")
@threads_option
@click.pass_context
def command(  # noqa: PLR0913 (click passes each option)
    ctx: click.Context,
    files: tuple[str, ...],
    *,
    data: bool,
    names: bool,
    fix: bool,
    dry_run: bool,
    rule: str | None,
    fail_on: str,
    as_json: bool,
    sarif: bool,
    threads: int | None,
) -> None:
    """Report problems in each FILE, and how to solve them.

    Each finding is one line: file, offset in bytes, severity, message, rule, and what to do. An
    error breaks the GGUF specification. A file that only llama.cpp refuses gets a warning.
    The exit code is 1 if any file has an error, or a finding that --fail-on includes. Only --data
    reads tensor data. --fix edits keys in place, and never changes what llama.cpp computes.
    """
    _require_sense(files, rule, is_dry=dry_run and not fix, is_twice=as_json and sarif)
    if rule is not None:
        _explain(rule, as_json=as_json)
        return
    is_quiet = as_json or sarif
    if fix:
        for file in files if not dry_run else ():
            refuse_pipe(file)
        for file in dict.fromkeys(files):
            _fix(file, dry_run=dry_run, is_quiet=is_quiet)
    checked: dict[str, list[Finding]] = {}
    for file in dict.fromkeys(files):
        checked |= _check(file, data=data, names=names, threads=threads)
    if as_json:
        emit([_plain(file, findings) for file, findings in checked.items()])
    elif sarif:
        from ggufkit.rules.findings import as_sarif  # noqa: PLC0415 (slow to import)

        emit(as_sarif(finding for findings in checked.values() for finding in findings))
    else:
        with paged():
            for file, findings in checked.items():
                _print(file, findings, unread="" if data else "; tensor data was not read (--data)")
    worst = _SEVERITIES[: _SEVERITIES.index(fail_on) + 1]
    if any(finding.severity in worst for findings in checked.values() for finding in findings):
        ctx.exit(1)


def _require_sense(
    files: tuple[str, ...], rule: str | None, *, is_dry: bool, is_twice: bool
) -> None:
    if is_twice:
        raise click.UsageError("Use either --json or --sarif, not both")
    if is_dry:
        raise click.UsageError("--dry-run needs --fix: check itself writes nothing")
    if rule is None and not files:
        raise click.UsageError("Missing argument 'FILE...'")


def _explain(id: str, *, as_json: bool) -> None:
    try:
        rule = explain(id)
    except MissingKeyError as error:
        raise click.BadParameter(
            f"{error.message}. {error.remedy}", param_hint="--explain"
        ) from None
    from ggufkit.edits.repair import REPAIRED  # noqa: PLC0415 (slow to import)

    if as_json:
        texts = {"message": rule.pattern, "explanation": rule.why, "remedy": rule.remedy}
        kind = {"rule": id, "severity": rule.severity, "breaks": rule.breaks}
        emit(kind | texts | {"fixable": id in REPAIRED})
        return
    click.echo(f"{id}: {', '.join(filter(None, (rule.severity, _BREAKS[rule.breaks])))}")
    click.echo(f"\n{rule.pattern}\n\n{rule.why}\n\n{rule.remedy}.")
    if id in REPAIRED:
        click.echo("\n--fix repairs this.")


def _fix(file: str, *, dry_run: bool, is_quiet: bool) -> None:
    """Repair a file; if it is too broken to open, the check that follows reports it."""
    from ggufkit.cli.reports.show_changes import show  # noqa: PLC0415 (slow to import)
    from ggufkit.edits.in_place import apply  # noqa: PLC0415
    from ggufkit.edits.repair import plan_repair  # noqa: PLC0415

    try:
        planned = plan_repair(file)
    except (ggufkit.errors.FormatError, FileNotFoundError):
        return
    if not is_quiet:
        show(planned.changes)
    if not dry_run:
        apply(planned)
        streams.work_is_done()


def _check(file: str, *, data: bool, names: bool, threads: int | None) -> dict[str, list[Finding]]:
    """Return the findings of a file, or of each model in a folder."""
    try:
        with progress_bar("checking") as progress:
            return check_models(file, CheckOptions(data, names, threads, progress))
    except OSError as error:  # must not stop the check of the other files
        return {
            file: [finding("unreadable", 0, reason=error.strerror or str(error)).at(UrlPath(file))]
        }


def verdict(findings: list[Finding]) -> str:
    """Return in words whether a file with these findings is valid for GGUF and for llama.cpp."""
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors and all(finding.rule == "shard-missing" for finding in errors):
        return "incomplete: shards are missing"
    if any(finding.breaks for finding in errors):
        return "broken: it breaks the specification"
    if any(finding.rule == "unfinished" for finding in errors):
        return "incomplete: part of its data was never written"
    if errors:
        return "not readable"
    if any(finding.breaks == "llama.cpp" for finding in findings):
        return "valid GGUF that llama.cpp refuses"
    return "valid GGUF"


def _print(file: str, findings: list[Finding], *, unread: str) -> None:
    for problem in findings:
        severity = click.style(problem.severity, fg=_COLOURS[problem.severity], bold=True)
        place = printable(f"{problem.path or file}:{problem.offset}")
        rule = ", ".join(filter(None, (problem.rule, _BREAKS[problem.breaks])))
        text = printable(f"{problem.message} [{rule}]. {problem.remedy}.")
        click.echo(f"{place}: {severity}: {text}")
    severities: Counter[str] = Counter(problem.severity for problem in findings)
    counts = ", ".join(counted(severities[severity], severity) for severity in _COLOURS)
    click.echo(f"{printable(file)}: {verdict(findings)} ({counts}){unread}")


def _plain(file: str, findings: list[Finding]) -> dict[str, Any]:
    rows = [{**vars(row), "path": str(row.path or "")} for row in findings]
    return {"file": file, "verdict": verdict(findings), "findings": rows}
