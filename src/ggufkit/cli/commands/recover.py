"""`ggufkit recover`: finish or undo interrupted edits of files."""

from __future__ import annotations

from typing import Final

import click

import ggufkit
from ggufkit.cli.errors import FAILED, report
from ggufkit.cli.options import flag, new_command
from ggufkit.cli.output import emit
from ggufkit.edits.recover import Outcome
from ggufkit.errors import GGUFError, printable

_OUTCOMES: Final = {
    "nothing": "no edit was interrupted",
    "before": "the edit had not started; the file is unchanged",
    "after": "finished the edit",
    "replaced": "the file was replaced since; removed the old journal",
}


@new_command("recover", "ggufkit recover model.gguf", "ggufkit recover *.gguf --json")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@flag("--force", "Recover even if the file was copied since.")
@flag("--json as_json", "Print the outcomes as JSON.")
@click.pass_context
def command(ctx: click.Context, files: tuple[str, ...], *, force: bool, as_json: bool) -> None:
    """Finish or undo the interrupted edit of each FILE.

    Commands that only read a file show the state after the edit, with a note, and leave the file as
    it is. Run `recover` before another program opens the file.
    """
    outcomes = {file: _recovered(file, force=force) for file in dict.fromkeys(files)}
    if as_json:
        emit([{"file": file, "outcome": outcome} for file, outcome in outcomes.items()])
    else:
        for file, outcome in outcomes.items():
            if outcome:
                click.echo(f"{printable(file)}: {_OUTCOMES[outcome]}")
    if None in outcomes.values():
        ctx.exit(FAILED)


def _recovered(file: str, *, force: bool) -> Outcome | None:
    """Return the outcome; None for an error, which must not stop the recovery of others."""
    try:
        return ggufkit.recover(file, force=force)
    except (GGUFError, OSError) as error:
        report(error)
        return None
