"""Commands for whole models give a result or a typed error for every forged file."""

from __future__ import annotations

import itertools

import pytest

import forge
from sampled import divided
from shell import ggufkit

ALL = "re:."
COMMANDS = {
    "diff": ("diff", "FILE", "FILE"),
    "hash": ("hash", "FILE", "--all", "--uuid", "--content"),
    "keep": ("select", "FILE", "OUT", "--keep", ALL, "--rename", "re:^=x", "--drop-keys", ALL),
    "prune": ("select", "FILE", "OUT", "--prune-layers", "0"),
    "vocabulary": ("select", "FILE", "OUT", "--vocab-only"),
    "graft": ("select", "FILE", "OUT", "--graft", f"FILE:{ALL}", "--graft-keys", f"FILE:{ALL}"),
    "estimate": ("estimate", "FILE", "--memory", "1G"),
    "name": ("name", "FILE", "--rename", "--dry-run"),
}


# Each file meets two commands in the matrix, and each command a quarter of the files.
@pytest.mark.parametrize(
    ("name", "command"),
    divided(
        itertools.product(forge.corpus(), COMMANDS),
        lambda number: (number + number // len(COMMANDS)) % 4 == 0,
    ),
)
def test_forged_file_gives_an_error_or_a_result(name, command, tmp_path):
    path = str(forge.write(forge.corpus()[name], tmp_path / "forged"))
    out = str(tmp_path / "out.gguf")
    words = [word.replace("FILE", path).replace("OUT", out) for word in COMMANDS[command]]
    result = ggufkit(*words)
    expected = {0, 2} if command == "diff" else {0, 1}
    assert result.code in expected, result.err
    assert all(char.isprintable() or char == "\n" for char in result.out + result.err)
    assert bool(result.code) == ("error: " in result.err)
