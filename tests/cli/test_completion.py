"""Completion in the shell: scripts for each, and what they offer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

import ggufkit
from ggufkit.cli.app import COMMANDS
from shell import process


def answered(shell, words, **environment):
    """Return the completions that the command offers for the last of `words`."""
    instruction = {"_GGUFKIT_COMPLETE": f"{shell}_complete", **environment}
    between = "\n" if shell == "bash" else " "
    with process(env=instruction | {"COMP_WORDS": between.join(words)}) as command:
        return command.communicate()[0].decode()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_calls_the_command(shell):
    with process(env={"_GGUFKIT_COMPLETE": f"{shell}_source"}) as command:
        script = command.communicate()[0].decode()
    assert command.returncode == 0
    assert f"_GGUFKIT_COMPLETE={shell}_complete" in script


@pytest.mark.parametrize("command", COMMANDS)
def test_offers_every_command(command):
    offered = answered("bash", ["ggufkit", command[:2]], COMP_CWORD="1").split()
    assert f"plain,{command}" in offered


def test_offers_options():
    offered = answered("bash", ["ggufkit", "select", "a", "b", "--gra"], COMP_CWORD="4").split()
    assert offered == ["plain,--graft", "plain,--graft-keys"]


def test_zsh_shows_what_a_command_does():
    offered = answered("zsh", ["ggufkit", "sel"], COMP_CWORD="1")
    assert offered.splitlines()[:3] == [
        "plain",
        "select",
        "Keep, drop, rename and graft tensors, layers and keys.",
    ]


@pytest.fixture
def shell_with_ggufkit(tmp_path, monkeypatch):
    """A folder with models, with the command on the path and a cache of llama.cpp."""
    command = tmp_path / "bin" / "ggufkit"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ggufkit "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(command.parent), prepend=os.pathsep)
    monkeypatch.setenv("LLAMA_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    for path in (tmp_path / "cache" / "tiny.gguf", tmp_path / "here.gguf"):
        ggufkit.save(
            path,
            {"blk.0.attn_q.weight": np.zeros(4, "f4")},
            {"general.name": "x", "general.type": "model"},
        )
    return tmp_path


def run(shell, script, folder):
    done = subprocess.run(
        [shell, "-c", script], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


# Bash splits a word at its colons before it asks.
LINES = {
    ("ggufkit", "insp"): ["inspect"],
    ("ggufkit", "inspect", "llama.cpp", ":"): ["tiny.gguf"],
    ("ggufkit", "diff", "llama.cpp", ":", "tiny.gguf", "llama.cpp", ":", "t"): ["tiny.gguf"],
    ("ggufkit", "inspect", "here.gguf", "--key", "general.n"): ["general.name"],
    ("ggufkit", "edit", "llama.cpp", ":", "tiny.gguf", "--unset", "general.t"): ["general.type"],
    ("ggufkit", "inspect", "no.gguf", "--key", "general.n"): [],
    ("ggufkit", "inspect", "here.gguf", "--tensors", "blk.0.a"): ["blk.0.attn_q.weight"],
    ("ggufkit", "edit", "here.gguf", "--set", "general.na"): ["general.name="],
    ("ggufkit", "inspect", "--tensors", "blk.0.a"): ["blk.0.attn_q.weight"],
    ("ggufkit", "edit", "--set", "general.na"): ["general.name="],
    ("ggufkit", "check", "--explain", "token-r"): ["token-rows"],
    ("ggufkit", "quantize", "a b.gguf", "c.gguf", "Q5_K"): ["Q5_K_S", "Q5_K_M", "Q5_K_R4"],
}


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
@pytest.mark.parametrize("words", LINES, ids=" ".join)
def test_bash_completes(shell_with_ggufkit, words):
    listed = " ".join(f"'{word}'" for word in words)
    script = f"""
        eval "$(_GGUFKIT_COMPLETE=bash_source ggufkit)"
        COMP_WORDS=({listed})
        COMP_CWORD={len(words) - 1}
        _ggufkit_completion ggufkit
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    offered = [line for line in run("bash", script, shell_with_ggufkit) if line]
    assert offered == LINES[words]


@pytest.mark.skipif(not shutil.which("fish"), reason="no fish")
def test_fish_completes(shell_with_ggufkit):
    source = "_GGUFKIT_COMPLETE=fish_source ggufkit | source; "
    folder = shell_with_ggufkit
    assert run("fish", source + "complete -C 'ggufkit insp'", folder)[0].startswith("inspect")
    line = "complete -C 'ggufkit inspect llama.cpp:t'"
    assert run("fish", source + line, folder) == ["llama.cpp:tiny.gguf"]
    assert "here.gguf" in run("fish", source + "complete -C 'ggufkit inspect he'", folder)
    key = "complete -C 'ggufkit edit here.gguf --set general.na'"
    assert run("fish", source + key, folder) == ["general.name="]
    tensor = "complete -C 'ggufkit inspect --tensors blk.0.a'"  # of the model in this folder
    assert run("fish", source + tensor, folder) == ["blk.0.attn_q.weight"]


@pytest.mark.skipif(not shutil.which("zsh"), reason="no zsh")
def test_zsh_accepts_the_script(shell_with_ggufkit):
    script = """
        autoload -Uz compinit && compinit -D
        eval "$(_GGUFKIT_COMPLETE=zsh_source ggufkit)"
        print -r -- $_comps[ggufkit]
    """
    assert run("zsh", script, shell_with_ggufkit) == ["_ggufkit_completion"]


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_file_may_stand_after_the_word_that_is_completed(shell, shell_with_ggufkit):
    other = shell_with_ggufkit / "cache" / "other one.gguf"
    ggufkit.save(other, {"a": np.zeros(4, "f4")}, {"general.near": "x"})
    words = ["ggufkit", "inspect", "--key", "general.n", f"'{other}'"]
    offered = answered(shell, words, COMP_CWORD="3").split()
    assert [word for word in offered if "general" in word][-1].endswith("general.near")
    nowhere = [*words[:4], "general.gguf"]
    assert "near" not in answered(shell, nowhere, COMP_CWORD="3")


def test_zsh_offers_cached_names_and_files(shell_with_ggufkit):
    offered = answered("zsh", ["ggufkit", "inspect", "llama.cpp:t"], COMP_CWORD="2")
    assert offered.splitlines()[:2] == ["plain", "llama.cpp:tiny.gguf"]
    assert answered("zsh", ["ggufkit", "inspect", "he"], COMP_CWORD="2").startswith("file\nhe")
