"""Defines the group of commands; each is a module of its name, imported when called."""

from __future__ import annotations

import copy
import difflib
import importlib
import os
import sys
from typing import Final

import click

from ggufkit._version import __version__
from ggufkit.cli import llama_names, streams
from ggufkit.cli.errors import FAILED, report
from ggufkit.cli.output import QUIET
from ggufkit.errors import GGUFError
from ggufkit.format.types import DIALECT_VARIABLE, DIALECTS

SUMMARIES: Final = {  # of each command, by the sections of the help, in its order
    "Look": {
        "check": "Find what is wrong with files.",
        "diff": "Compare models by name.",
        "estimate": "Show how much memory a model takes in llama.cpp.",
        "hash": "Hash tensors as llama-gguf-hash does, and check manifests.",
        "inspect": "Show what is in a file.",
        "list": "List the models in caches, or in a repository on the Hub.",
        "name": "Parse file names, and rename files to follow the convention.",
        "report": "Write a page about a model, as HTML or Markdown.",
        "template": "Render a conversation with the chat template of a model.",
        "tensor": "Show or save the values of one tensor.",
        "tokenize": "Split a text into tokens, or turn tokens into text.",
        "view": "Look at models in a browser.",
    },
    "Change": {
        "copy": "Split, merge, convert byte order, version or alignment.",
        "edit": "Edit metadata, in place.",
        "recover": "Finish or undo an interrupted edit.",
        "select": "Keep, drop, rename and graft tensors, layers and keys.",
    },
    "Quantize": {
        "card": "Write the model card of a release.",
        "eval": "Measure perplexity, and divergence from a base model.",
        "imatrix": "Show, merge, convert or compute importance matrices.",
        "plan": "Show how large a model would be in every recipe.",
        "quantize": "Quantize a model.",
        "release": "Make and publish a whole set of quantized files.",
        "reproduce": "Prove that a quantized file derives from a source.",
        "sensitivity": "Measure how much predictions suffer from each group of tensors.",
    },
    "Convert": {
        "archs": "List the architectures that convert supports.",
        "convert": "Convert a Hugging Face checkpoint to GGUF.",
        "convert-legacy": "Convert GGML, GGMF and GGJT files of the LLaMA family to GGUF.",
        "export": "Export a model as a Hugging Face checkpoint.",
        "lora": "Convert, merge or extract LoRA adapters.",
    },
}
_SUMMARY_OF: Final = {name: line for lines in SUMMARIES.values() for name, line in lines.items()}
COMMANDS: Final = tuple(sorted(_SUMMARY_OF))


# Commands that lose nothing when the reader of their output closes it.
ONLY_SHOW: Final = frozenset(
    ("inspect", "tensor", "tokenize", "template", "plan", "estimate", "archs", "list", "name")
)


class Commands(click.Group):
    """The commands of the table, imported when used, so that `ggufkit --version` imports none."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        """Return the names in order."""
        return list(COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Show each command in its section."""
        for section, summaries in SUMMARIES.items():
            with formatter.section(section):
                formatter.write_dl(list(summaries.items()))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a command."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"ggufkit.cli.commands.{cmd_name.replace('-', '_')}")
        command = _with_common(module.command)
        command.short_help = _SUMMARY_OF[cmd_name]
        return command

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


def _set_quiet(context: click.Context, _param: click.Parameter, value: bool) -> None:  # noqa: FBT001 (click's signature)
    if value:
        context.meta[QUIET] = True  # neither notes nor progress nor what was written


_QUIET_OPTION: Final = click.Option(
    ["-q", "--quiet"],
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_set_quiet,
    help="Print errors and results only: no notes, no progress, no list of written files.",
)


def _set_dialect(context: click.Context, _param: click.Parameter, value: str | None) -> None:
    if value:
        before = os.environ.get(DIALECT_VARIABLE, "")
        os.environ[DIALECT_VARIABLE] = value  # for the processes that a command starts, too
        context.call_on_close(lambda: os.environ.update({DIALECT_VARIABLE: before}))


_DIALECT_OPTION: Final = click.Option(
    ["--dialect"],
    type=click.Choice([*DIALECTS]),
    expose_value=False,
    is_eager=True,
    callback=_set_dialect,
    help="The program that GGUF files are for, if the sizes of tensors do not tell their types.",
)


def _with_common(command: click.Command) -> click.Command:
    """Return a command, and its subcommands, with the options that all commands have."""
    copied = copy.copy(command)
    copied.params = [*command.params, _DIALECT_OPTION, _QUIET_OPTION]
    if isinstance(command, click.Group) and isinstance(copied, click.Group):
        copied.commands = {name: _with_common(cmd) for name, cmd in command.commands.items()}
    return copied


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
