"""Remedies in errors can be typed as shown: options of a command, or arguments in Python."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import click
import pytest

import ggufkit
from ggufkit.cli.app import app
from ggufkit.cli.output import with_options

PACKAGE = Path(ggufkit.__file__).parent
LIBRARY = [
    p
    for p in PACKAGE.rglob("*.py")
    if p.relative_to(PACKAGE).parts[0] != "cli" and "_native" not in p.name
]


@functools.cache
def texts(path):
    """Return the strings of a module that are shown: docstrings are not."""
    tree = ast.parse(path.read_text("utf-8"))
    notes = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    strings = (node for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return [n.value for n in strings if isinstance(n.value, str) and id(n) not in notes]


def options():
    ctx = click.Context(app)
    for name in app.list_commands(ctx):
        command = app.get_command(ctx, name)
        for leaf in getattr(command, "commands", {"": command}).values():
            yield from (option for param in leaf.params for option in param.opts)


ARGUMENTS = sorted(
    {
        setting
        for path in LIBRARY
        for text in texts(path)
        for setting in re.findall(r"\([a-z_]+=(?:True|\.\.\.)\)", text)
    }
)


def test_finds_arguments_that_messages_name():
    assert "(force=True)" in ARGUMENTS


@pytest.mark.parametrize("argument", ARGUMENTS)
def test_command_messages_show_arguments_as_existing_options(argument):
    message = with_options(f"allow it {argument}")[len("allow it (") : -1]
    assert message.removeprefix("leave out ") in set(options())


@pytest.mark.parametrize("path", LIBRARY, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_library_messages_name_options_only_in_whole_commands(path):
    for text in texts(path):
        assert not re.search(r"(?<!\S)\(?--[a-z]", re.sub(r"`[^`]*`", "", text)), text
