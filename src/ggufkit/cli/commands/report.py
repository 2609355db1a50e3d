"""`ggufkit report`: write a page about a model, or about several."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

import ggufkit
from ggufkit.cli.model_argument import FILE, MODEL
from ggufkit.cli.options import flag, new_command, no_clobber_option, option, threads_option
from ggufkit.cli.progress import progress_bar
from ggufkit.cli.write_model import may_replace, require_place
from ggufkit.cli.write_model import report as report_written

ENDINGS: Final = (".html", ".htm", ".md")


@new_command(
    "report",
    "ggufkit report model.gguf -o model.html",
    "ggufkit report model-F16.gguf model-Q4_K_M.gguf model-Q3_K_M.gguf -o quants.html",
    "ggufkit report model-F16.gguf model-Q4_K_M.gguf --eval quality.json -o card.md",
)
@click.argument("file", type=MODEL)
@click.argument("others", metavar="[OTHER]...", type=MODEL, nargs=-1)
@option(
    "-o --output out",
    "The .html or .md file to write.",
    required=True,
    type=click.Path(path_type=Path),
)
@option(
    "--eval evaluation",
    "Add quality against size, from what `ggufkit eval --json` printed.",
    type=FILE,
)
@flag("--no-data", "Compare headers only; do not read tensors.")
@no_clobber_option
@threads_option
def command(file: str, *, out: Path, no_data: bool, **options: Any) -> None:
    """Write a page about FILE that opens offline: facts, findings, where the bytes are, memory.

    Each OTHER is compared with FILE: metadata, types, and the error of each tensor, the most
    damaged first. The ending of the output chooses HTML, or Markdown for a model card.
    """
    if out.suffix.lower() not in ENDINGS:
        raise click.UsageError(f"{out} has an ending that no report has; use .html or .md")
    require_place(str(out))
    with progress_bar("comparing") as progress:
        path = ggufkit.report(
            file, out, data=not no_data, clobber=may_replace(), progress=progress, **options
        )
    report_written([path])
