"""`ggufkit reproduce`: prove that a quantized file derives from a source."""

from __future__ import annotations

import contextlib
from typing import Any, Final

import click

import ggufkit
from ggufkit.cli.model_argument import FILE, MODEL, open_any
from ggufkit.cli.options import threads_option
from ggufkit.cli.output import counted, emit, examples
from ggufkit.cli.progress import progress_bar
from ggufkit.errors import MissingImportanceError, printable
from ggufkit.quantization.reproduce import Reproduction

SHOWN: Final = 10  # tensors and keys that differ; --json has all


@click.command(
    "reproduce",
    epilog=examples(
        "ggufkit reproduce model-Q4_K_M.gguf --source model-f16.gguf",
        "ggufkit reproduce model-IQ2_XS.gguf --source model-f16.gguf --imatrix imatrix.gguf",
    ),
)
@click.argument("file", type=MODEL)
@click.option("--source", required=True, type=MODEL, help="The model that FILE was quantized from.")
@click.option("--imatrix", type=FILE, help="The importance matrix that was used, if any.")
@click.option("--hessian", type=FILE, help="The Hessian that was used, if any.")
@threads_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_context
def command(
    context: click.Context, /, file: str, *, source: str, as_json: bool, **options: Any
) -> None:
    """Quantize the source again with the settings that FILE carries, and compare everything.

    Nothing is written. FILE must come from `quantize --provenance`. The exit code is 0 if every
    tensor and key is the same, else 1; then the first tensor that differs is named.
    """
    with contextlib.ExitStack() as opened:
        made, origin = (opened.enter_context(open_any(each)) for each in (file, source))
        bar = opened.enter_context(progress_bar("reproducing"))
        try:
            found = ggufkit.reproduce(made, origin, progress=bar, **options)
        except MissingImportanceError as error:
            option = "--hessian" if "Hessian" in error.message else "--imatrix"
            raise MissingImportanceError(error.message, remedy=f"Name it: {option} FILE") from None
    if as_json:
        emit(_plain(found))
    else:
        _print(found, file, source)
    context.exit(0 if found else 1)


def _print(found: Reproduction, file: str, source: str) -> None:
    if found:
        same = "byte for byte" if found.has_same_layout else "in every tensor and key"
        click.echo(
            f"{file} derives from {source} {same}: {counted(found.count, 'tensor')}, recipe "
            f"{found.provenance.settings.get('recipe')}"
        )
        if not found.has_same_layout:
            click.echo("The files are laid out in another way: in shards, or with other padding.")
        return
    click.echo(f"{file} does not derive from {source}")
    if not found.has_same_source:
        click.echo(
            "  the source is another one, or was changed: its digest is not that in the file"
        )
    if found.first:
        number = f"{len(found.tensors):,} of {counted(found.count, 'tensor')}"
        click.echo(f"  {number} differ; the first is {printable(found.first)}")
        for each in found.tensors[:SHOWN]:
            click.echo(f"    {printable(each.name)} ({each.kind})")
    for key in found.keys[:SHOWN]:
        click.echo(f"  the key {printable(key.key)} differs")


def _plain(found: Reproduction) -> dict[str, Any]:
    return {
        "derives": bool(found),
        "has_same_layout": found.has_same_layout,
        "has_same_source": found.has_same_source,
        "first": found.first,
        "tensors": [{"name": each.name, "difference": each.kind} for each in found.tensors],
        "keys": [each.key for each in found.keys],
        "source": found.provenance.source,
        "imatrix": found.provenance.imatrix,
        "hessian": found.provenance.hessian,
        "settings": dict(found.provenance.settings),
    }
