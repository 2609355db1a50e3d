"""`ggufkit edit`: change metadata in place."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

import ggufkit
from ggufkit.cli import streams
from ggufkit.cli.edit_options import Assignments, assignments
from ggufkit.cli.model_argument import MODEL, complete_key, complete_setting
from ggufkit.cli.options import flag, no_clobber_option, parse_size, threads_option
from ggufkit.cli.output import emit, examples, note
from ggufkit.cli.pipes import require_file
from ggufkit.cli.progress import progress_bar
from ggufkit.cli.reports.show_changes import as_json, show
from ggufkit.cli.streams import PIPE
from ggufkit.cli.write_model import report, write_out
from ggufkit.edits.changes import changes
from ggufkit.edits.edit import Edits
from ggufkit.edits.in_place import EditPlan, apply, plan_by
from ggufkit.edits.undo import plan_undo
from ggufkit.errors import printable
from ggufkit.format.metadata import Metadata

_DONE = {
    "nothing": "{file} already has these values; nothing written",
    "patched": "edited {file} in place; no data moved",
    "moved": "edited {file} in place; the data moved by {shift:+,} bytes without a copy",
    "cloned": "edited {file}; the data moved by {shift:+,} bytes without a copy",
    "copied": "edited {file}; all data was copied to a new file",
    "laid out": "edited {file}; all tensors were moved, and --undo cannot take that back",
}


@click.command(
    "edit",
    epilog=examples(
        "ggufkit edit model.gguf --set general.name='My model' --dry-run",
        "ggufkit edit model.gguf --chat-template template.jinja",
        "ggufkit edit model.gguf --special-token eos='<|im_end|>'",
        "ggufkit edit model.gguf --set 'tokenizer.ggml.tokens[5]=<tool>'",
        "ggufkit edit model.gguf --set-type 'my.sizes:array[uint64]=[1, 2, 3]'",
        "ggufkit edit model.gguf --unset general.url --rename my.key=my.other_key",
        "ggufkit edit model.gguf --undo",
    ),
)
@click.argument("file", metavar="IN", type=MODEL)
@click.option(
    "--set",
    "pairs",
    metavar="K=V",
    multiple=True,
    shell_complete=complete_setting,
    help="Set a key, or item K[INDEX].",
)
@click.option(
    "--set-type", "typed", metavar="K:T=V", multiple=True, help="Set a key with the type T."
)
@click.option("--set-json", metavar="FILE", help="Set the keys of a JSON object in a file.")
@click.option(
    "--unset", metavar="K", multiple=True, shell_complete=complete_key, help="Remove a key."
)
@click.option(
    "--rename",
    metavar="A=B",
    multiple=True,
    shell_complete=complete_setting,
    help="Rename the key A to B.",
)
@click.option("--chat-template", metavar="FILE", help="Set the chat template from a file.")
@click.option("--special-token", metavar="NAME=ID|TEXT", multiple=True, help="Set bos, eos, ...")
@click.option(
    "--append", metavar="K=V", multiple=True, help="Append an item, or a JSON array, to an array."
)
@click.option("--add-tags", metavar="TAG,...", multiple=True, help="Add to general.tags.")
@click.option(
    "--reserve", type=parse_size, metavar="SIZE", help="Reserve room in the header for later edits."
)
@click.option("-o", "--output", metavar="OUT", help="Write a copy (- for stdout); leave IN alone.")
@flag("--undo", help="Undo the last edit; run again to undo the one before.")
@flag("--redo", help="Redo the edit that was undone last.")
@flag("--force", help="Edit even if llama.cpp may refuse the file; follow links.")
@flag("--dry-run", help="Show what would change; write nothing.")
@flag("--json", "is_json", help="Print the changes as JSON.")
@no_clobber_option
@threads_option
def command(  # noqa: PLR0913 (click passes each option)
    file: str,
    *,
    reserve: int | None,
    output: str | None,
    undo: bool,
    redo: bool,
    force: bool,
    dry_run: bool,
    is_json: bool,
    threads: int | None,
    **settings: Any,
) -> None:
    """Change the metadata of IN in place; the time does not depend on the model's size.

    A value keeps the type of its key. The value of a new key decides its type. Arrays are
    JSON. The changes are shown first. IN may be any shard; the keys are in the first shard, which
    is edited. An edit in place leaves a small hidden file next to IN, .NAME.ggufkit-undo, for
    --undo. If an edit is killed, `ggufkit recover` or the next edit finishes it.
    """
    is_edit = any(settings.values()) or reserve is not None
    if (undo or redo) and (is_edit or output is not None):
        raise click.UsageError("--undo and --redo are whole edits; remove the other edit options")
    if undo and redo:
        raise click.UsageError("Use either --undo or --redo")
    if not undo and not redo and not is_edit:
        raise click.UsageError(
            "Nothing to edit; use --set, --unset, --rename or another edit option"
        )
    if is_json and output == PIPE and not dry_run:
        raise click.UsageError("--json and the model cannot both go to stdout")
    if output is None and not dry_run:
        require_file(file)
    if undo or redo:
        _apply(plan_undo(file, force=force, again=redo), dry_run=dry_run, is_json=is_json)
        return
    parsed = assignments(settings)
    if output is None:
        planned = plan_by(file, partial(_edits, parsed), reserve=reserve, force=force)
        _apply(planned, dry_run=dry_run, is_json=is_json)
        return
    with ggufkit.open(file) as model:
        edits = _edits(parsed, model.metadata)
        edited = ggufkit.edit(model, reserve=reserve or 0, force=force, **edits)
        differences = changes(model.metadata, edited.metadata)
        if not is_json:
            show(differences, err=output == PIPE)
        paths = [] if dry_run else write_out(edited, output, threads=threads)
    if is_json:
        emit({"files": [str(path) for path in paths], "changes": as_json(differences)})
    else:
        report(paths)


def _edits(assignments: Assignments, metadata: Metadata) -> Edits:
    """Return the arguments of `edit`; some depend on the types of the file's keys."""
    for key in assignments.unfamiliar(metadata):
        note(key)
    return assignments.edits(metadata)


def _apply(planned: EditPlan, *, dry_run: bool, is_json: bool) -> None:
    if not is_json:
        show(planned.changes)
    if dry_run:
        outcome = None
        if not is_json:
            click.echo(_would(planned))
    else:
        with progress_bar("editing") as progress:
            outcome = apply(planned, progress=progress)
            streams.work_is_done()
        if not is_json:
            place = printable(str(outcome.path))
            click.echo(_DONE[outcome.way].format(file=place, shift=outcome.shift))
    if is_json:
        way = outcome.way if outcome else None
        document = {"file": str(planned.path), "way": way, "shift": planned.journal.shift}
        emit(document | {"changes": as_json(planned.changes)})


def _would(planned: EditPlan) -> str:
    file = printable(str(planned.path))
    if planned.is_empty:
        return _DONE["nothing"].format(file=file)
    if planned.metadata is not None:
        return f"would move all tensors of {file}"
    shift = planned.journal.shift
    how = f"moves by {shift:+,} bytes" if shift else "stays where it is"
    return f"would edit {file} in place; tensor data {how}"
