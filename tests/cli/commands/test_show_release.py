"""What `ggufkit release` shows on a terminal of 80 columns, and that it shows it only there."""

from __future__ import annotations

import io
import os
import re
import threading
from pathlib import Path

import numpy as np
import pytest

import ggufkit
from ggufkit.cli.commands import release
from ggufkit.cli.commands.release import ReleaseView
from ggufkit.release.runner import ReleaseJob
from ggufkit.release.settings import Settings
from shell import process

pty = pytest.importorskip("pty", reason="terminals as POSIX has them")
CODES = re.compile(r"\x1b\[[?\d;]*[a-zA-Z]")
COMMAND = ("release", "in.gguf", "-o", "out", "--config", "release.toml", "--threads", 1)


class PseudoTerminal:
    """A pseudo-terminal; all that it gets is read."""

    def __init__(self):
        self.ours, self.theirs = pty.openpty()
        self.pieces = []
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        try:
            while piece := os.read(self.ours, 1 << 16):
                self.pieces.append(piece)
        except OSError:  # the other end was closed
            pass

    def text(self):
        os.close(self.theirs)
        self.reader.join(30)
        os.close(self.ours)
        return b"".join(self.pieces).decode()


@pytest.fixture(autouse=True)
def work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    tensors = {f"blk.{i}.ffn_up.weight": np.ones((4, 64), np.float32) for i in range(3)}
    ggufkit.save("in.gguf", tensors, {"general.architecture": "llama"})
    Path("release.toml").write_text('rungs = ["Q8_0", "F16"]\nrun = false\n')


@pytest.mark.parametrize("limit", [(), ("--disk", "1MB", "--upload", "./public")])
def test_terminal_shows_step_rung_and_disk_below_the_steps_that_are_done(limit):
    terminal = PseudoTerminal()
    with process(*COMMAND, *limit, stdout=terminal.theirs, stderr=terminal.theirs) as command:
        command.wait()
    text = terminal.text()
    assert command.returncode == 0, text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # the cursor is back
    lines = [CODES.sub("", line) for line in re.split(r"[\r\n]+", text)]
    assert max(map(len, lines)) <= 80
    for line in ("quantize Q8_0 and 1 more", "check Q8_0 (rung 1 of 2)", "check F16 (rung 2 of 2)"):
        assert line in lines, text
    assert any(line.startswith("in: 3 steps done in 0:00:") for line in lines)
    assert any(
        re.fullmatch(f"disk: .*, {'limit 1.0 MB' if limit else '.* free'}", line) for line in lines
    )
    assert "quantize Q8_0: in-Q8_0.gguf" in lines  # as without a terminal


@pytest.mark.parametrize("option", [None, "--quiet", "--json"])
def test_nothing_of_it_without_a_terminal_or_if_the_user_wants_none(option):
    terminal = PseudoTerminal()
    errors = terminal.theirs if option else -1
    with process(*COMMAND, *filter(None, [option]), stderr=errors) as command:
        out, err = command.communicate()
    text = terminal.text() + out.decode() + (err or b"").decode()
    assert command.returncode == 0
    assert "disk: " not in text
    assert "\x1b[?25" not in text


def test_bar_has_rate_and_time_left_and_nests(monkeypatch, tmp_path):
    from rich.console import Console

    monkeypatch.setattr(release, "DISK_SECONDS", -1.0)
    job = ReleaseJob("in.gguf", tmp_path, Settings(name="a\x1b[2Jb", rungs=("Q8_0",)))
    view = ReleaseView(job, lambda *_, **__: None)
    console = Console(width=80, record=True, file=io.StringIO())
    with view.bar("measuring", in_bytes=False) as show:
        with view.bar("reading") as inner:
            inner(1_500_000, 3_000_000)
            console.print(view)
        for count in range(8):
            show(count, 20)
        console.print(view)
    text = console.export_text()
    assert r"a\x1b[2Jb: 0 steps done in 0:00:0" in text
    assert "50% 1.5/3.0 MB" in text
    assert re.search(r"7/20 [\d.]+/s 0:00:0\d", text), text
    assert max(map(len, text.splitlines())) <= 80
