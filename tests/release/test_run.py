"""What a release does where the system or one step fails; no test here runs llama.cpp."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import ggufkit as library
from ggufkit.errors import OutputError
from ggufkit.output import resume
from ggufkit.release import journal, run
from shell import done, ggufkit

COMMAND = ("release", "in.gguf", "-o", "out", "--config", "release.toml", "--threads", "1")


@pytest.fixture(autouse=True)
def work(tmp_path, monkeypatch):
    """Make a model of a few tensors, which llama.cpp could not run, in the current folder."""
    monkeypatch.chdir(tmp_path)
    tensors = {f"blk.{i}.ffn_up.weight": np.ones((4, 64), np.float32) for i in range(3)}
    library.save("in.gguf", tensors, {"general.architecture": "llama"})
    Path("release.toml").write_text('rungs = ["Q8_0", "F16"]\nrun = false\n')


def failing(*_):
    raise OSError(28, "No space left on device")


def hidden_files():
    return [path.name for path in Path("out").iterdir() if path.name.startswith(".")]


def test_what_the_writer_could_not_remove_is_removed_at_the_end(monkeypatch):
    monkeypatch.setattr(resume, "remove", failing)
    done(*COMMAND)
    assert hidden_files() == []


@pytest.mark.parametrize("function", [(run, "remove_leftover"), (run, "sweep"), (shutil, "rmtree")])
def test_leftovers_that_stayed_are_removed_by_the_next_run(function, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(*function, failing)
        patch.setattr(resume, "remove", failing)
        assert "hidden files stay in out: No space left on device" in done(*COMMAND).err
    Path("out/.in-F16.gguf.ggufkit-part").write_bytes(b"")
    done(*COMMAND)
    assert hidden_files() == []


def test_journal_that_cannot_be_written_is_no_problem_of_one_file(monkeypatch):
    write_whole = journal.write_whole

    def full(path, content):
        if b'"check Q8_0"' in content:
            raise OutputError(f"writing {path}: No space left on device")
        write_whole(path, content)

    monkeypatch.setattr(journal, "write_whole", full)
    result = ggufkit(*COMMAND)
    assert result.code == 1
    assert "error: writing out/release.json: No space left on device" in result.err
    assert "check Q8_0 failed" not in result.err
