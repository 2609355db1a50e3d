"""A signal at each line of the code that makes hidden files leaves none of them."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

import faulty
import ggufkit
from ggufkit.system import cancellation
from platforms import posix
from shell import ggufkit as run

pytestmark = posix
ROOT = Path(ggufkit.__file__).parent
TRACED = {
    *map(str, (ROOT / "system").glob("*.py")),
    *(str(ROOT / name) for name in ("edits/in_place.py", "edits/recover.py", "edits/undo.py")),
    *(str(ROOT / name) for name in ("output/execute.py", "conversion/export.py")),
} - {str(ROOT / "system" / "cancellation.py")}
MAKING = {"publish", "_replace_file", "_moved_and_written", "begin", "__enter__", "__exit__"}
COMMANDS = ("copy", "split", "imatrix", "amend", "recover", "rename", "edit longer")
ARGUMENTS = {
    # The data moves, which takes a copy where the file system moves no blocks.
    "edit longer": ("edit", "out/odd.gguf", "--set", "general.name=" + "x" * 5000),
}


class RunWithSignal:
    """A command that gets SIGINT at its `at`-th new line of the traced code; never for 0."""

    def __init__(self, number, names):
        self.at = number
        self.names = names  # of functions; all for None
        self.lines = []

    def run(self, arguments):
        sys.settrace(self.called)
        try:
            return run(*arguments)
        finally:
            sys.settrace(None)

    def code_of(self, arguments):
        """Run the command in a process of its own, with the handlers of commands."""
        process = os.fork()
        if not process:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            cancellation.handle_signals()
            os._exit(self.run(arguments).code)
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])

    def called(self, frame, _event, _argument):
        code = frame.f_code
        is_traced = code.co_filename in TRACED and (not self.names or code.co_name in self.names)
        return self.lined if is_traced else None

    def lined(self, frame, event, _argument):
        line = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        if event == "line" and line not in self.lines:
            self.lines.append(line)
            if len(self.lines) == self.at:
                signal.raise_signal(signal.SIGINT)
        return self.lined


@pytest.mark.parametrize(
    ("command", "names"),
    [
        *((command, MAKING) for command in ("copy", "amend", "edit longer")),
        ("export", {"__enter__"}),
        *(pytest.param(command, None, marks=pytest.mark.exhaustive) for command in COMMANDS),
    ],
)
def test_signal_at_any_line_leaves_no_hidden_file(tmp_path, monkeypatch, command, names):
    original, work = tmp_path / "kept", tmp_path / "work"
    original.mkdir()
    faulty.make(original)
    if command == "recover":
        faulty.tear(original)
    arguments = ARGUMENTS.get(command) or faulty.arguments_of(command)
    if command in faulty.COMMANDS.keys() - faulty.UNTHREADED:
        arguments = (*arguments, "--threads", "1")
    number = 0
    old, new, whole = faulty.content(original / "out"), {}, RunWithSignal(0, names)
    while number <= len(whole.lines):
        monkeypatch.chdir(tmp_path)
        faulty.renew(original, work)
        monkeypatch.chdir(work)
        code = (
            RunWithSignal(number, names).code_of(arguments) if number else whole.run(arguments).code
        )
        there = faulty.content(work / "out")
        new = new if number else there
        line = whole.lines[number - 1] if number else ""
        assert code == (130 if number else 0), line
        extra = [name for name in there if Path(name).name.startswith(".")]
        assert not [name for name in extra if name not in old | new], (line, extra)
        assert faulty.state(there, old, new) in ("old", "new", "both", "absent"), line
        number += 1
    assert number > 1
