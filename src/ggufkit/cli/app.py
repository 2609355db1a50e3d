"""The group of commands; each lives in a module of its name, imported when it is called."""

from __future__ import annotations

import difflib
import importlib
import os
from typing import Final

import click

from ggufkit._version import __version__
from ggufkit.cli.errors import FAILED, report
from ggufkit.errors import GGUFError

COMMANDS: Final = (
    "inspect",
    "check",
    "quantize",
    "plan",
    "estimate",
    "imatrix",
    "copy",
    "edit",
    "recover",
    "convert",
    "convert-legacy",
    "export",
    "archs",
    "bench",
    "hash",
    "select",
    "diff",
    "name",
    "list",
)


class Commands(click.Group):
    """Commands by module name, so that `ggufkit --version` imports none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        """Return the names in the order of help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a command."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(_module_of(cmd_name)).command
        return command

    def invoke(self, ctx: click.Context) -> object:
        """Report errors while click still knows about colours; TruncatedError is no Ctrl-D."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # click ends quietly: who read our output has had enough
        except (GGUFError, OSError) as error:
            report(error)
            ctx.exit(FAILED)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the nearest command where there is none of that name."""
        name = args[0]
        if name in COMMANDS or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        near = difflib.get_close_matches(name, COMMANDS, 1)
        hint = f"did you mean {near[0]}?" if near else f"the commands are {', '.join(COMMANDS)}."
        raise click.UsageError(f"Unknown command {name!r}; {hint}", ctx)


def _module_of(name: str) -> str:
    return f"ggufkit.cli.commands.{name.replace('-', '_')}"


@click.group(
    cls=Commands,
    context_settings={
        "help_option_names": ["--help", "-h"],
        "color": False if os.environ.get("NO_COLOR") else None,
        "max_content_width": 100,
    },
    epilog="COMMAND --help describes a command and shows examples.",
)
@click.version_option(__version__, message="ggufkit %(version)s")
def app() -> None:
    """Open, check, split, merge and quantize GGUF model files."""
