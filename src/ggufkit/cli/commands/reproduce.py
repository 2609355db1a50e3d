"""`ggufkit reproduce`: prove that a quantized file derives from a source."""

from __future__ import annotations

import contextlib
from typing import Any, Final

import click

import ggufkit
from ggufkit.cli.model_argument import FILE, MODEL, open_any
from ggufkit.cli.options import flag, new_command, option, threads_option
from ggufkit.cli.output import counted, emit
from ggufkit.cli.progress import progress_bar
from ggufkit.errors import MissingImportanceError, printable
from ggufkit.quantization.reproduce import Reproduction

SHOWN: Final = 10  # tensors and keys that differ; --json has all


@new_command(
    "reproduce",
    "ggufkit reproduce model-Q4_K_M.gguf --source model-f16.gguf",
    "ggufkit reproduce model-IQ2_XS.gguf --source model-f16.gguf --imatrix imatrix.gguf",
    options_metavar="--source MODEL [OPTIONS]",
)
@click.argument("file", type=MODEL)
@option("--source", "The model that FILE was quantized from.", required=True, type=MODEL)
@option("--imatrix", "The importance matrix that was used, if any.", type=FILE)
@option("--hessian", "The Hessian that was used, if any.", type=FILE)
@threads_option
@flag("--json as_json", "Print the result as JSON.")
@click.pass_context
def command(
    context: click.Context, /, file: str, *, source: str, as_json: bool, **options: Any
) -> None:
    """Quantize the source again with the settings that FILE carries, and compare everything.

    Nothing is written. FILE must come from `quantize --provenance`. The exit code is 0 if every
    tensor and key is the same, else 1; then the first tensor that differs is named.
    """
    with contextlib.ExitStack() as opened:
        quantized, origin = (opened.enter_context(open_any(path)) for path in (file, source))
        bar = opened.enter_context(progress_bar("reproducing"))
        try:
            reproduction = ggufkit.reproduce(quantized, origin, progress=bar, **options)
        except MissingImportanceError as error:
            option = "--hessian" if "Hessian" in error.message else "--imatrix"
            raise MissingImportanceError(error.message, remedy=f"Name it: {option} FILE") from None
    if as_json:
        emit(_plain(reproduction))
    else:
        _print(reproduction, file, source)
    context.exit(0 if reproduction else 1)


def _print(reproduction: Reproduction, file: str, source: str) -> None:
    if reproduction:
        same = "byte for byte" if reproduction.has_same_layout else "in every tensor and key"
        click.echo(
            f"{file} derives from {source} {same}: {counted(reproduction.count, 'tensor')}, recipe "
            f"{reproduction.provenance.settings.get('recipe')}"
        )
        if not reproduction.has_same_layout:
            click.echo("The files are laid out in another way: in shards, or with other padding.")
        return
    click.echo(f"{file} does not derive from {source}")
    if not reproduction.has_same_source:
        click.echo(
            "  the source is another one, or was changed: its digest is not that in the file"
        )
    if reproduction.first:
        number = f"{len(reproduction.tensors):,} of {counted(reproduction.count, 'tensor')}"
        click.echo(f"  {number} differ; the first is {printable(reproduction.first)}")
        for tensor in reproduction.tensors[:SHOWN]:
            click.echo(f"    {printable(tensor.name)} ({tensor.kind})")
    for key in reproduction.keys[:SHOWN]:
        click.echo(f"  the key {printable(key.key)} differs")


def _plain(reproduction: Reproduction) -> dict[str, Any]:
    return {
        "derives": bool(reproduction),
        "has_same_layout": reproduction.has_same_layout,
        "has_same_source": reproduction.has_same_source,
        "first": reproduction.first,
        "tensors": [
            {"name": tensor.name, "difference": tensor.kind} for tensor in reproduction.tensors
        ],
        "keys": [key.key for key in reproduction.keys],
        "source": reproduction.provenance.source,
        "imatrix": reproduction.provenance.imatrix,
        "hessian": reproduction.provenance.hessian,
        "settings": dict(reproduction.provenance.settings),
    }
