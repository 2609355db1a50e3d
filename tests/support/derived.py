"""What tests of all commands derive from the commands themselves: a new one is tried too."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import click

from ggufkit.cli.app import COMMANDS

WRITING = {"OUT", "--output", "-o", "--fix", "--rename", "--dry-run"}  # what only writers take


def leaves() -> dict[str, click.Command]:
    """Return all commands by their words, those of groups in place of the group."""
    return dict(_leaves())


def _leaves() -> Iterator[tuple[str, click.Command]]:
    for name in COMMANDS:
        module = importlib.import_module(f"ggufkit.cli.commands.{name.replace('-', '_')}")
        inner = getattr(module.command, "commands", None) or {"": module.command}
        yield from ((f"{name} {word}".rstrip(), command) for word, command in inner.items())


def spellings(command: click.Command) -> set[str]:
    """Return the options of a command, and the names of its arguments in the help."""
    return {text for param in command.params for text in (*param.opts, param.metavar or "") if text}


def is_writing(command: click.Command) -> bool:
    """Whether a command takes an output, or may change its input."""
    return bool(spellings(command) & WRITING)


def words(command: click.Command, source: str, target: str) -> tuple[str, ...]:
    """Return arguments that a command cannot do without: its output, and inputs for all others."""
    needed = [p for p in command.params if isinstance(p, click.Argument) and p.required]
    return tuple(target if param.metavar == "OUT" else source for param in needed)
