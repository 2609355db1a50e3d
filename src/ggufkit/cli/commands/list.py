"""`ggufkit list`: list models in the caches of other programs, or in a repository on the Hub."""

from __future__ import annotations

from typing import Any

import click

import ggufkit
from ggufkit.cli.commands.estimate import fit_words
from ggufkit.cli.options import TokenCount, flag, new_command, option, parse_memory
from ggufkit.cli.output import emit, note, paged, size, table
from ggufkit.errors import printable
from ggufkit.models.hub.names import SCHEME, is_hub_name
from ggufkit.models.hub.repository import CachedModel
from ggufkit.models.open_all import open_all


@new_command(
    "list",
    "ggufkit list",
    "ggufkit list llama",
    "ggufkit list --json | jq -r '.[].path'",
    "ggufkit list hf://bartowski/Llama-3.2-1B-Instruct-GGUF",
    "ggufkit list hf://bartowski/Llama-3.2-1B-Instruct-GGUF --memory 2GiB --context 8192",
)
@click.argument("pattern", required=False, default="")
@option(
    "--memory SIZE",
    "Show which quants of a repository fit into this much memory.",
    type=parse_memory,
)
@option(
    "--context",
    "With --memory: tokens of all texts together.  [default: the training context]",
    type=TokenCount(min=1),
)
@flag("--json as_json", "Print names, paths and sizes as JSON.")
def command(pattern: str, *, memory: int | None, context: int | None, as_json: bool) -> None:
    """List the GGUF models in the caches of Hugging Face, llama.cpp, Ollama and LM Studio.

    With PATTERN, list only names that contain it. If PATTERN is a repository on the Hugging Face
    Hub (hf://org/repo), list its quants and their sizes; this reads no file. --memory 8GiB reads
    all their headers, and shows what each takes in llama.cpp. Every command accepts these names
    as FILE.
    """
    if memory is not None:
        _fitting(pattern, memory, context, as_json=as_json)
        return
    if context is not None:
        raise click.UsageError("--context needs --memory")
    models = ggufkit.find_models(pattern)
    if as_json:
        emit([_plain(model) for model in models])
        return
    if not models:
        note("no cached model" + (f" has {pattern!r} in its name" if pattern else ""))
        if pattern and is_hub_name(f"{SCHEME}://{pattern}") and pattern.count("/") == 1:
            note(f"`ggufkit list {SCHEME}://{pattern}` lists a repository on the Hub")
        return
    rows = ((printable(m.name), size(m.nbytes), printable(str(m.path))) for m in models)
    with paged():
        table(("NAME", "SIZE", "PATH"), rows, right="lrl")


def _plain(model: CachedModel) -> dict[str, Any]:
    return {"name": model.name, "path": str(model.path), "nbytes": model.nbytes}


def _fitting(pattern: str, memory: int, context: int | None, *, as_json: bool) -> None:
    """Show what each model of a repository takes, and how much of it fits."""
    if not is_hub_name(pattern):
        raise click.UsageError("--memory needs a repository on the Hub, such as hf://org/repo")
    with open_all(pattern) as models:
        estimates = [(path, ggufkit.estimate(model, context=context)) for path, model in models]
    fits = [(path, estimated, estimated.fit(memory)) for path, estimated in estimates]
    if as_json:
        emit(
            [
                _plain(path) | {"context": e.context, "total": e.total, "fit": vars(fit)}
                for path, e, fit in fits
            ]
        )
        return
    rows = (
        (printable(path.name), size(path.nbytes), size(e.total), fit_words(e, fit, "yes"))
        for path, e, fit in fits
    )
    with paged():
        table(("NAME", "SIZE", "MEMORY", "FITS"), rows, right="lrrl")
