"""`ggufkit view`: look at models in a browser."""

from __future__ import annotations

import contextlib
import signal
from typing import Final

import click

from ggufkit.cli.model_argument import MODEL, look_at
from ggufkit.cli.options import Count
from ggufkit.cli.output import examples, note
from ggufkit.frameworks.extras import library
from ggufkit.view.page_model import PageModel
from ggufkit.view.serving.server import DEFAULT_HOST, bound, serve

MAX_PORT: Final = 65535


@click.command(
    "view",
    epilog=examples(
        "ggufkit view model.gguf",
        "ggufkit view model-Q4_K_M.gguf model-F16.gguf",
        "ggufkit view hf://org/repo:Q4_K_M",
        "ggufkit view model.gguf --no-browser --port 8080",
    ),
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=MODEL)
@click.option("--no-browser", is_flag=True, help="Print the address; do not open a browser.")
@click.option(
    "--port", type=Count(0, MAX_PORT), default=0, help="Port of the page.  [default: any free one]"
)
@click.option(
    "--host",
    default=DEFAULT_HOST,
    show_default=True,
    metavar="ADDRESS",
    help="Address to listen on. Only this machine can reach the default.",
)
def command(files: tuple[str, ...], *, no_browser: bool, port: int, host: str) -> None:
    """Show FILE in a browser: overview, metadata, tensors, tokenizer, template, memory.

    Several files are also compared. The page is served from this machine until Ctrl-C; nothing is
    changed, and tensors are read when looked at. The address holds a random token, and without it
    nothing is shown.
    """
    library("starlette", "view")
    library("uvicorn", "view")
    with contextlib.ExitStack() as opened:
        models = [PageModel(file, opened.enter_context(look_at(file))) for file in files]
        address = bound(host, port)
        opened.callback(address.socket.close)
        if address.is_open_to_others:
            note(
                f"others on the network can reach this page at {host}; whoever has the address "
                "sees all of the model"
            )
        signal.signal(signal.SIGINT, signal.default_int_handler)  # which `serve` ends by
        serve(
            models,
            address,
            opens_browser=not no_browser,
            started=lambda url: click.echo(f"{url}\nPress Ctrl-C to stop."),
        )
