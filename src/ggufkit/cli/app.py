"""Defines the group of commands; each is a module of its name, imported when called."""

from __future__ import annotations

import copy
import difflib
import importlib
import os
import re
import sys
from pathlib import Path
from typing import Final

import click

from ggufkit._version import __version__
from ggufkit.cli import llama_names, streams
from ggufkit.cli.errors import FAILED, report
from ggufkit.cli.output import be_quiet
from ggufkit.errors import GGUFError

SECTIONS: Final = ("Look", "Change", "Quantize", "Convert")  # of the help, in this order
_SUMMARY: Final = (  # of a command, in its file
    r'^SECTION: Final = "(?P<section>\w+)".*?^    "[a-z-]+",\s+short_help="(?P<text>[^"]*)"'
)
_FOLDER: Final = Path(__file__).with_name("commands")
COMMANDS: Final = tuple(
    sorted(path.stem.replace("_", "-") for path in _FOLDER.iterdir() if path.stem[0].isalpha())
)


ONLY_SHOW: Final = (
    *("inspect", "tensor", "tokenize", "template", "plan", "estimate", "archs", "list", "name"),
    "bench",
)


def summary(name: str) -> tuple[str, str]:
    """Return the section and the short help of a command, read from the text of its file.

    Importing all commands for one line each would take most of a second.
    """
    path = _FOLDER / f"{name.replace('-', '_')}.py"
    found = re.search(_SUMMARY, path.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return (found["section"], found["text"]) if found else ("", "")


class Commands(click.Group):
    """One command for each module in `commands`, so that `ggufkit --version` imports none."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        """Return the names in order."""
        return list(COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Show each command in the section that its module names."""
        summaries = {name: summary(name) for name in COMMANDS}
        for section in SECTIONS:
            with formatter.section(section):
                formatter.write_dl(
                    [(name, text) for name, (where, text) in summaries.items() if where == section]
                )

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a command."""
        if cmd_name not in COMMANDS:
            return None
        return _with_quiet(importlib.import_module(_module_of(cmd_name)).command)

    def invoke(self, ctx: click.Context) -> object:
        """Report errors here: click knows about colours, but takes an EOFError for Ctrl-D."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            if ctx.invoked_subcommand not in ONLY_SHOW:
                raise  # click then exits with 1: the real exit code would have mattered
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # receives buffered text
            ctx.exit(0)  # the reader of our output has closed it
        except (GGUFError, OSError) as error:
            report(streams.error_of(error))
            ctx.exit(FAILED)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command; the error for an unknown one names the nearest."""
        name = args[0]
        if name in COMMANDS or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        if name in llama_names.COMMANDS:
            use = llama_names.COMMANDS[name]
            raise click.UsageError(f"ggufkit has no command {name!r}; use {use}", ctx)
        near = difflib.get_close_matches(name, COMMANDS, 1)
        hint = f"did you mean {near[0]}?" if near else f"the commands are {', '.join(COMMANDS)}."
        raise click.UsageError(f"Unknown command {name!r}; {hint}", ctx)


def _set_quiet(_context: click.Context, _param: click.Parameter, value: bool) -> None:  # noqa: FBT001 (click's signature)
    if value:
        be_quiet()


def _quiet_option() -> click.Option:
    return click.Option(
        ["-q", "--quiet"],
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_set_quiet,
        help="Print errors and results only: no notes, no progress, no list of written files.",
    )


def _with_quiet(command: click.Command) -> click.Command:
    """Return a command, and its subcommands, with the option that all commands have."""
    made = copy.copy(command)
    made.params = [*command.params, _quiet_option()]
    if isinstance(command, click.Group) and isinstance(made, click.Group):
        made.commands = {name: _with_quiet(each) for name, each in command.commands.items()}
    return made


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
    """See, check, convert, quantize and edit GGUF model files."""
