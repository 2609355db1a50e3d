"""`ggufkit list`: list models in the caches of other programs, or in a repository on the Hub."""

from __future__ import annotations

from typing import Final

import click

import ggufkit
from ggufkit.cli.output import emit, examples, note, paged, size, table
from ggufkit.errors import printable

SECTION: Final = "Look"  # of the help


@click.command(
    "list",
    short_help="List the models in caches, or in a repository on the Hub.",
    epilog=examples(
        "ggufkit list",
        "ggufkit list llama",
        "ggufkit list --json | jq -r '.[].path'",
        "ggufkit list hf://bartowski/Llama-3.2-1B-Instruct-GGUF",
    ),
)
@click.argument("pattern", required=False, default="")
@click.option("--json", "as_json", is_flag=True, help="Print names, paths and sizes as JSON.")
def command(pattern: str, *, as_json: bool) -> None:
    """List the GGUF models in the caches of Hugging Face, llama.cpp, Ollama and LM Studio.

    With PATTERN, list only names that contain it. If PATTERN is a repository on the Hugging Face
    Hub (hf://org/repo), list its quants and their sizes; this reads no file. Every command accepts
    these names as FILE.
    """
    models = ggufkit.find_models(pattern)
    if as_json:
        emit([{"name": m.name, "path": str(m.path), "nbytes": m.nbytes} for m in models])
        return
    if not models:
        note("no cached model" + (f" has {pattern!r} in its name" if pattern else ""))
        return
    rows = ((printable(m.name), size(m.nbytes), printable(str(m.path))) for m in models)
    with paged():
        table(("NAME", "SIZE", "PATH"), rows, right="lrl")
