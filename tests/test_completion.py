"""Completion in the shell: scripts for each, and what they offer."""

from __future__ import annotations

import pytest

from ggufkit.cli.app import COMMANDS
from shell import process


def answered(shell, words, **environment):
    """What the command offers to complete the last of `words`."""
    instruction = {"_GGUFKIT_COMPLETE": f"{shell}_complete", **environment}
    with process(env=instruction | {"COMP_WORDS": " ".join(words)}) as command:
        return command.communicate()[0].decode()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_gets_a_script_that_asks_the_command(shell):
    with process(env={"_GGUFKIT_COMPLETE": f"{shell}_source"}) as command:
        script = command.communicate()[0].decode()
    assert command.returncode == 0
    assert f"_GGUFKIT_COMPLETE={shell}_complete" in script


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_offered(command):
    offered = answered("bash", ["ggufkit", command[:2]], COMP_CWORD="1").split()
    assert f"plain,{command}" in offered


def test_options_are_offered():
    offered = answered("bash", ["ggufkit", "select", "a", "b", "--gra"], COMP_CWORD="4").split()
    assert offered == ["plain,--graft", "plain,--graft-keys"]


def test_zsh_is_told_what_a_command_does():
    offered = answered("zsh", ["ggufkit", "sel"], COMP_CWORD="1")
    assert offered.splitlines()[:3] == [
        "plain",
        "select",
        "Keep, drop, rename and graft tensors, layers and keys.",
    ]
