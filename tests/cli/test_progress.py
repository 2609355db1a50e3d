from __future__ import annotations

import io

import numpy as np
import pytest

import ggufkit as api
from ggufkit.cli import progress
from shell import done, ggufkit


@pytest.fixture
def path(tmp_path):
    api.save(tmp_path / "m.gguf", {"a": np.zeros((8, 1 << 16), "f4")}, {})
    return tmp_path / "m.gguf"


def test_short_work_prints_no_progress(path, tmp_path):
    assert done("copy", path, tmp_path / "o.gguf").err == ""


def test_long_work_prints_plain_lines_where_no_terminal_is(path, tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(progress, "EVERY_SECONDS", 0.0)
    lines = done("tensor", path, "a", "--stats").err.splitlines()
    assert lines
    for line in lines:
        assert line.startswith("reading: ")
        assert " of 2.1 MB (" in line
        assert "/s, " in line
        assert line.endswith(" left")


def test_lines_keep_their_distance(monkeypatch):
    now = iter([0.0, 4.0, 6.0, 7.0, 15.0, 17.0, 20.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    with progress.progress_bar("counting", in_bytes=False) as show:
        for count in (1, 2, 3, 4, 5):
            show(count, 10)
        show(10, 10)
    assert stream.getvalue().splitlines() == [
        "counting: 2 of 10 (20%), 0:00:24 left",
        "counting: 5 of 10 (50%), 0:00:17 left",
    ]


@pytest.mark.parametrize("option", ["-q", "--quiet"])
def test_quiet_commands_print_neither_progress_nor_notes_nor_reports(
    path, tmp_path, monkeypatch, option
):
    monkeypatch.setattr(progress, "FIRST_SECONDS", 0.0)
    result = done("copy", option, path, tmp_path / "o.gguf")
    assert (result.out, result.err) == ("", "")
    assert (tmp_path / "o.gguf").exists()
    assert done("tensor", path, "a", "--stats", option).err == ""


def test_quiet_commands_still_print_results_and_errors(path):
    assert "a" in done("inspect", path, "-q").out
    result = ggufkit("inspect", "nosuch.gguf", "-q")
    assert (result.code, result.err.startswith("error: ")) == (1, True)
