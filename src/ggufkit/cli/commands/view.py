"""`ggufkit view`: look at models in a browser."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from ggufkit.cli.model_argument import FILE, MODEL, is_checkpoint, look_at
from ggufkit.cli.options import Count, flag, new_command, option
from ggufkit.cli.output import note
from ggufkit.errors import GGUFError, ShardError
from ggufkit.evaluation.quality_rows import evaluations_in, read_evaluation
from ggufkit.frameworks.extras import library
from ggufkit.models.open import first_files
from ggufkit.view.page_model import PageModel
from ggufkit.view.serving.server import DEFAULT_HOST, bound, is_open_to_others, serve

MAX_PORT: Final = 65535
MAX_MODELS: Final = 100  # of a folder


@new_command(
    "view",
    "ggufkit view model.gguf",
    "ggufkit view model-Q4_K_M.gguf model-F16.gguf",
    "ggufkit view quants/ --eval quality.json",
    "ggufkit view hf://org/repo:Q4_K_M",
    "ggufkit view model.gguf --no-browser --port 8080",
    "ggufkit view model.gguf --edit",
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=MODEL)
@option(
    "--eval evaluation",
    "Show quality next to sizes, from the JSON that `ggufkit eval` wrote to FILE.",
    type=FILE,
)
@flag("--no-browser", "Print the address; do not open a browser.")
@option(
    "--port",
    "Port of the page.  [default: any free one]",
    type=Count(0, MAX_PORT),
    default=0,
    show_default=False,
)
@option(
    "--host ADDRESS",
    "Address to listen on. Only this machine can reach the default.",
    default=DEFAULT_HOST,
)
@flag("--edit edits", "Let the page change metadata and template.")
def command(  # noqa: PLR0913 (the options)
    files: tuple[str, ...],
    *,
    evaluation: str | None,
    no_browser: bool,
    port: int,
    host: str,
    edits: bool,
) -> None:
    """Show FILE in a browser: overview, metadata, tensors, tokenizer, template, memory.

    FILE may be a folder: the page shows all its models, with the results of `eval` in it. Several
    models are also compared. The page is served from this machine until Ctrl-C; nothing is changed
    without --edit, and tensors are read when you look at them. The address holds a random token,
    and without it nothing is shown.
    """
    if edits and is_open_to_others(host):
        raise click.UsageError(f"--edit is for this machine only; leave out --host {host}")
    library("starlette", "view")
    library("uvicorn", "view")
    with contextlib.ExitStack() as opened:
        models = [page for file in files for page in _pages(file, opened)]
        _set_qualities(models, files, evaluation)
        address = bound(host, port)
        opened.callback(address.socket.close)
        if is_open_to_others(host):
            note(
                f"others on the network can reach this page at {host}; whoever has the address "
                "sees all of the model"
            )
        signal.signal(signal.SIGINT, signal.default_int_handler)  # which `serve` ends by
        serve(
            models,
            address,
            edits=edits,
            opens_browser=not no_browser,
            started=lambda url: click.echo(f"{url}\nPress Ctrl-C to stop."),
        )


def _pages(name: str, opened: contextlib.ExitStack) -> Iterator[PageModel]:
    """Yield the model of an argument, or all models of a folder; what is broken there is noted."""
    files = _models_in(Path(name))
    if is_checkpoint(name) or not files:
        yield PageModel(name, opened.enter_context(look_at(name)))
        return
    is_shown = False
    for file in files:
        try:
            page = PageModel(file, opened.enter_context(look_at(file)))
        except (GGUFError, OSError) as error:
            note(f"not shown: {error}")
            continue
        is_shown = True
        yield page
    if not is_shown:
        raise ShardError(f"no model in the folder {name} can be opened", remedy="See the notes")


def _models_in(folder: Path) -> list[str]:
    """Return the first file of each model in a folder, each once; links may name it again."""
    if not folder.is_dir():
        return []
    files = sorted(first_files(folder).values(), key=Path.is_symlink)
    distinct = {file.resolve(): file for file in reversed(files) if file.is_file()}
    if len(distinct) > MAX_MODELS:
        raise ShardError(
            f"the folder {folder} holds {len(distinct):,} models, more than {MAX_MODELS}",
            remedy="Name the files to show",
        )
    return sorted(map(str, distinct.values()))


def _set_qualities(models: list[PageModel], files: tuple[str, ...], evaluation: str | None) -> None:
    """Give the models what the result of `eval`, or else those in folders, say of them."""
    if evaluation:
        results = [(Path(evaluation), read_evaluation(Path(evaluation)))]
    else:
        folders = filter(Path.is_dir, map(Path, files))
        results = [result for folder in folders for result in evaluations_in(folder)]
    for path, rows in results:
        for page in models:
            page.set_quality(rows, path.name)
    if evaluation and not any(page.quality for page in models):
        note(f"{evaluation} is about other models: none has the name and the size of one here")
