"""`ggufkit export`: export a GGUF model as a Hugging Face checkpoint."""

from __future__ import annotations

from typing import Any

import click

import ggufkit
from ggufkit.cli.model_argument import MODEL
from ggufkit.cli.options import (
    Command,
    arch_path_option,
    flag,
    new_command,
    option,
    parse_size,
    threads_option,
)
from ggufkit.cli.output import emit, note, size, table
from ggufkit.cli.progress import progress_bar
from ggufkit.cli.write_model import report
from ggufkit.conversion import export
from ggufkit.errors import printable
from ggufkit.system.descriptors import as_path


@new_command(
    "export",
    "ggufkit export model.gguf model/",
    "ggufkit export model-q4_k_m.gguf model/ --dtype f16 --shard-size 5G",
    "ggufkit export model.gguf model/ --dry-run",
    "ggufkit export flux1-dev-Q8_0.gguf transformer/ --names diffusers",
    cls=Command,
)
@click.argument("source", metavar="IN", type=MODEL)
@click.argument("out", metavar="OUT")
@option(
    "--dtype",
    "Type of matrices; auto keeps float types and decodes quantized tensors to BF16.",
    type=click.Choice((export.AUTO, *export.DTYPES)),
    default=export.AUTO,
)
@option(
    "--shard-size SIZE",
    "Write safetensors files with at most this much tensor data each.",
    type=parse_size,
)
@option(
    "--names",
    "Whose names the tensors of an image or video model get.",
    type=click.Choice((export.PUBLISHED, export.DIFFUSERS)),
    default=export.PUBLISHED,
)
@arch_path_option
@threads_option
@flag("--dry-run", "Show what would be written; write nothing.")
@flag("--json as_json", "Print the result as JSON.")
def command(
    source: str, out: str, *, threads: int | None, dry_run: bool, as_json: bool, **options: Any
) -> None:
    """Export the model IN to the folder OUT, as a checkpoint that transformers loads.

    OUT gets safetensors files, config.json, the tokenizer files and a model card. It must be new
    or empty. It appears only when it is complete. An image or video model becomes safetensors files
    alone, with the names of the publisher's checkpoint or of diffusers.
    """
    with ggufkit.open(source) as model:
        plan = export.plan_export(model, say=note, **options)
        paths = []
        if not dry_run:
            with progress_bar("writing") as bar:
                paths = export.write_export(plan, as_path(out), threads=threads, progress=bar)
    if as_json:
        files = [
            {"name": f.name, "tensors": len(f.extents), "nbytes": f.nbytes} for f in plan.files
        ]
        emit({"path": out, "nbytes": plan.nbytes, "files": files})
    elif dry_run:
        rows = [(printable(f.name), str(len(f.extents)), size(f.nbytes)) for f in plan.files]
        table(("FILE", "TENSORS", "SIZE"), rows, right="lrr")
    else:
        report(paths)
