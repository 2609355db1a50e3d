"""The pages of commands match the commands."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from ggufkit.cli.app import COMMANDS

DOCS = Path(__file__).parents[2] / "docs"
OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z0-9-]*")
EXAMPLE = re.compile(r"^(?: {4,7}|\$ )?ggufkit +([a-z-]+)((?:[^\n]*\\\n)*[^\n]*)", re.MULTILINE)


def command(name: str) -> click.Command:
    return importlib.import_module(f"ggufkit.cli.commands.{name.replace('-', '_')}").command


def options(command: click.Command) -> Iterator[click.Option]:
    """Yield the options of a command and of the commands in it."""
    yield from (parameter for parameter in command.params if isinstance(parameter, click.Option))
    for inner in getattr(command, "commands", {}).values():
        yield from options(inner)


def spelled(command: click.Command) -> set[str]:
    """Return every way to write an option of a command."""
    return {text for option in options(command) for text in (*option.opts, *option.secondary_opts)}


def options_in(text: str) -> set[str]:
    return set(OPTION.findall(text))


@pytest.mark.parametrize("name", COMMANDS)
def test_page_of_a_command_names_each_of_its_options(name):
    page = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    mentioned = options_in(page)
    unsaid = [option.opts for option in options(command(name)) if not mentioned & set(option.opts)]
    assert unsaid == []


@pytest.mark.parametrize("name", COMMANDS)
def test_help_explains_each_option(name):
    assert [option.opts for option in options(command(name)) if not option.help] == []


@pytest.mark.parametrize(
    "page", [*DOCS.rglob("*.md"), DOCS.parent / "README.md"], ids=lambda page: page.name
)
def test_examples_use_existing_options(page):
    unknown = {
        (name, option)
        for name, rest in EXAMPLE.findall(page.read_text(encoding="utf-8"))
        if name in COMMANDS
        for option in options_in(re.split("[#|<]", rest)[0]) - spelled(command(name)) - {"--help"}
    }
    assert unknown == set()
