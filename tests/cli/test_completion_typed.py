"""Shells in a terminal: TAB completes harmless names and runs nothing from a file."""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from click import shell_completion

import ggufkit
from ggufkit.cli.completion import Bash, is_harmless, register

pty = pytest.importorskip("pty", reason="terminals as POSIX has them")

PATIENCE = 30  # seconds until a shell answers
QUIET = 0.3  # seconds without output after which it has finished
EVIL = (
    "zz`touch${IFS}pwned`",
    "zz$(touch${IFS}pwned)",
    "zz;touch${IFS}pwned",
    "zz;touch pwned",
    "zz&touch\tpwned",
    "zz|touch pwned;",
    "zz>pwned",
    "zz(touch pwned)",
    "zz<(touch pwned)",
    "zz\ntouch pwned\n",
    "zz\x1b\rtouch pwned\r",
    "zz{x,y}*?[a]~!!^#'\"\\",
)
RUNS = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}
SET_UP = {
    "bash": 'PS1="READY"">"; eval "$(_GGUFKIT_COMPLETE=bash_source ggufkit)"',
    "zsh": 'PS1="READY"">"; autoload -Uz compinit; compinit -D; '
    'eval "$(_GGUFKIT_COMPLETE=zsh_source ggufkit)"',
    "fish": "function fish_prompt; echo -n READY'>'; end; "
    "_GGUFKIT_COMPLETE=fish_source ggufkit | source",
}


class Terminal:
    """A shell in a terminal, in a folder."""

    def __init__(self, shell, folder):
        self.log = folder / "log"
        self.log.write_text("")
        environment = {**os.environ, "TERM": "dumb", "HISTFILE": "", "HOME": str(folder)}
        self.process, self.end = pty.fork()
        if self.process == 0:
            os.chdir(folder)
            os.execvpe(RUNS[shell][0], RUNS[shell], environment)  # noqa: S606 (as a terminal does)
        self.until("")
        self.line(SET_UP[shell])

    def until(self, text):
        """Return the output until `text` was seen and no more output follows."""
        seen, last = b"", time.monotonic()
        while time.monotonic() - last < (QUIET if text.encode() in seen else PATIENCE):
            if select.select([self.end], [], [], 0.05)[0]:
                seen += os.read(self.end, 1 << 16)
                last = time.monotonic()
        return seen.decode(errors="replace")

    def line(self, text):
        os.write(self.end, text.encode() + b"\r")
        return self.until("READY>")

    def tab(self, text):
        """Type a beginning and TAB, and wait until the command has answered the shell."""
        before = len(self.log.read_text())
        os.write(self.end, text.encode() + b"\t")
        begun = time.monotonic()
        while len(self.log.read_text()) == before and time.monotonic() - begun < PATIENCE:
            time.sleep(0.02)
        assert len(self.log.read_text()) > before, "the shell did not ask"
        return self.until("")

    def close(self):
        os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)
        os.close(self.end)


@pytest.fixture(params=RUNS)
def terminal(request, tmp_path, monkeypatch):
    if not shutil.which(request.param):
        pytest.skip(f"{request.param} is not installed")
    command = tmp_path / "bin" / "ggufkit"
    command.parent.mkdir()
    source = Path(ggufkit.__file__).parents[1]
    command.write_text(
        f'#!/bin/sh\nPYTHONPATH="{source}" "{sys.executable}" -m ggufkit "$@"\n'
        f'code=$?\necho asked >> "{tmp_path / "log"}"\nexit $code\n'
    )
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(command.parent), prepend=os.pathsep)
    terminal = Terminal(request.param, tmp_path)
    yield terminal
    terminal.close()


@pytest.mark.parametrize(
    "evil",
    [EVIL[:4], pytest.param(EVIL, marks=pytest.mark.exhaustive)],
    ids=["some", "all"],
)
def test_tab_runs_nothing_from_a_file_and_completes_safe_keys(terminal, tmp_path, evil):
    for number, key in enumerate(evil):
        keys = {"general.architecture": "llama", key: "evil"}
        ggufkit.save(tmp_path / f"evil{number}.gguf", {"x": np.zeros(4, "f4")}, keys)
    ggufkit.save(tmp_path / "sound.gguf", {"x": np.zeros(4, "f4")}, {"zz.sound_key": "found it"})
    terminal.tab("ggufkit inspect sound.gguf --key zz")
    assert "found it" in terminal.line("")
    for number in range(len(evil)):
        terminal.tab(f"ggufkit inspect evil{number}.gguf --key zz")
        terminal.line("")
        assert not (tmp_path / "pwned").exists(), evil[number]


def test_does_not_offer_names_that_a_shell_would_run():
    assert not any(map(is_harmless, EVIL))
    assert not any(map(is_harmless, [*"`$&;|<>(){}*?[]~!^#'\"\\% \n\t\0\x1b\u202e", "=x", ""]))
    assert all(
        map(is_harmless, ["general.name", "ollama:llama3.2", "Q8_0,Q4_K_M", "--graft-keys", "é"])
    )


def test_guards_every_shell_that_click_supports():
    before = dict(shell_completion._available_shells)
    try:
        register()
        guard = Bash.__mro__[1]
        assert all(issubclass(s, guard) for s in shell_completion._available_shells.values())
    finally:
        shell_completion._available_shells.update(before)
