"""No command follows, waits for or changes a foreign entry under a hidden name."""

from __future__ import annotations

import contextlib
import itertools
import shutil
from pathlib import Path

import pytest

import faulty
from ggufkit.system.hidden_files import FOLDER, SUFFIXES, hidden
from neighbours import KEPT, POSSIBLE, content, place
from platforms import posix
from shell import ggufkit

pytestmark = posix
COMMANDS = faulty.all_commands()
EACH = 2  # kinds of neighbours for each command and name, other ones for the next


def targets_of(arguments):
    """Return what a command writes, as its arguments name it."""
    return [Path(word) for word in arguments if word.startswith("out/")]


def clear(*paths):
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


@pytest.mark.parametrize(
    "change",
    [EACH, pytest.param(len(POSSIBLE), marks=pytest.mark.exhaustive)],
    ids="{}-kinds".format,
)
@pytest.mark.parametrize("command", COMMANDS)
def test_command_neither_follows_nor_changes_a_neighbour(tmp_path, monkeypatch, command, change):
    original, work = tmp_path / "kept", tmp_path / "work"
    original.mkdir()
    faulty.make(original)
    faulty.tear(original)
    faulty.replace_llama_cpp(monkeypatch.setattr)
    (target,) = targets_of(COMMANDS[command])[:1]
    kinds = itertools.cycle(POSSIBLE)
    for name in SUFFIXES:
        for kind in itertools.islice(kinds, change):
            faulty.renew(original, work)
            monkeypatch.chdir(work)
            clear(hidden(target, name))
            neighbour = place(hidden(target.absolute(), name), kind)
            done = ggufkit(*COMMANDS[command])
            assert done.code in (0, 1), (name, kind, done.err)
            assert "Traceback" not in done.err, (name, kind)
            if not (kind == "folder" and name == FOLDER):  # which may be our own leftover
                assert content(neighbour.precious) == KEPT, (name, kind)
