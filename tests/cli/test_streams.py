"""Streams that are full or missing, and signals while the command is still being imported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import ggufkit
from shell import process

posix = pytest.mark.skipif(os.name == "nt", reason="descriptors and signals as POSIX has them")
FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")


@pytest.fixture
def model(tmp_path):
    return ggufkit.save(tmp_path / "m.gguf", {"x": np.zeros(32, "f4")}, {"general.name": "x"})[0]


def in_shell(model, line):
    """Run a line of the shell, in which `$ggufkit` is the command; return code and stderr."""
    command = f'ggufkit() {{ "{sys.executable}" -m ggufkit "$@"; }}; {line}'
    done = subprocess.run(
        ["sh", "-c", command], cwd=model.parent, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr


@needs_full
@pytest.mark.parametrize(
    "words", ["inspect m.gguf", "inspect m.gguf --json", "copy m.gguf -", "--help", "edit --help"]
)
def test_full_output_gives_one_error(model, words):
    code, said = in_shell(model, f"ggufkit {words} > /dev/full")
    assert code == 1
    assert said.count('"error": ' if "--json" in words else "error: ") == 1
    assert "No space left on device" in said
    assert "Traceback" not in said


@needs_full
@pytest.mark.parametrize("buffer", ["", "1"], ids=["buffered", "unbuffered"])
def test_full_output_is_named_and_finished_files_are_told(model, buffer):
    run = f"export PYTHONUNBUFFERED={buffer}; ggufkit"
    code, said = in_shell(model, f"{run} copy m.gguf out.gguf > /dev/full")
    assert code == 1
    assert "writing standard output: No space left on device" in said
    assert "The files are written" in said
    assert (model.parent / "out.gguf").exists()
    code, said = in_shell(model, f"{run} inspect m.gguf > /dev/full")
    assert "writing standard output" in said
    assert "The files are written" not in said
    assert "standard output: No space" in in_shell(model, f"{run} copy m.gguf - > /dev/full")[1]


@needs_full
@pytest.mark.parametrize("other", ["m.gguf", "n.gguf"])
def test_full_output_is_not_taken_for_a_difference(model, other):
    ggufkit.save(model.with_name("n.gguf"), {"x": np.ones(32, "f4")})
    code, said = in_shell(model, f"ggufkit diff m.gguf {other} > /dev/full")
    assert code == 2
    assert said.count("error: ") == 1


@posix
@pytest.mark.parametrize("words", ["inspect m.gguf", "check m.gguf --json", "--version"])
def test_text_for_a_missing_output_is_dropped(model, words):
    assert in_shell(model, f"ggufkit {words} >&-") == (0, "")


@posix
def test_model_for_a_missing_output_gives_one_error(model):
    code, said = in_shell(model, "ggufkit copy m.gguf - >&-")
    assert code == 1
    assert said.count("error: ") == 1
    assert "Traceback" not in said


@posix
@pytest.mark.parametrize("closed", ["2>&-", "<&-", "<&- 2>&-"])
def test_other_streams_may_be_missing(model, closed):
    assert in_shell(model, f"ggufkit inspect m.gguf {closed} >/dev/null")[0] == 0
    assert in_shell(model, f"ggufkit inspect none.gguf {closed} >/dev/null")[0] == 1


@posix
def test_prints_nothing_into_a_model_that_reuses_the_descriptor_of_a_missing_stream(model):
    before = model.read_bytes()
    in_shell(model, "ggufkit edit m.gguf --set general.name=y >&- 2>&- <&-")
    after = model.read_bytes()
    assert after != before
    with ggufkit.open(model) as found:
        assert found.metadata["general.name"] == "y"
    in_shell(model, "ggufkit copy m.gguf n.gguf >&- 2>&- <&-")
    assert model.with_name("n.gguf").read_bytes() == after


@needs_full
def test_error_that_cannot_be_printed_gives_an_exit_code(model):
    assert in_shell(model, "ggufkit inspect none.gguf 2>/dev/full")[0] == 1


def test_closed_pipe_gets_no_error_message(model):
    reading, writing = os.pipe()
    os.close(reading)
    with process("inspect", model, stdout=writing) as command:
        said = command.stderr.read()
    os.close(writing)
    assert said == b""


# From the first import on. What comes before that is Python's own start.

IMPORTING = """
import builtins, signal, sys
from ggufkit.cli import main
left = int(sys.argv.pop(1))
signals = [getattr(signal, name) for name in sys.argv.pop(1).split(",")]

class Counter:
    def find_spec(self, name, path, target=None):
        global left
        left -= 1
        if left == 0:
            for number in signals:
                signal.raise_signal(number)
        return None

sys.meta_path.insert(0, Counter())
main()
"""


@posix
@pytest.mark.parametrize(("named", "codes"), [("SIGINT", {130}), ("SIGTERM", {143})])
@pytest.mark.parametrize("at", [1, 2, 5, 10, 50, 100])
def test_signal_while_modules_are_imported_shows_no_traceback(model, named, codes, at):
    done = subprocess.run(
        [sys.executable, "-c", IMPORTING, str(at), named, "inspect", str(model)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in codes
    assert "Traceback" not in done.stderr


SLOW = """
import os, signal, sys, time
from ggufkit.cli import errors, signals
import click
signals.leave_at_once()

@click.command()
def command():
    try:
        print("begun", flush=True)
        time.sleep(60)
    finally:
        while True:  # clearing away never ends
            time.sleep(0.05)

errors.run(command)
"""


@posix
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_second_signal_ends_the_process_at_once(name):
    number = getattr(signal, name)
    with subprocess.Popen([sys.executable, "-c", SLOW], stdout=subprocess.PIPE) as command:
        command.stdout.readline()
        while command.poll() is None:
            command.send_signal(number)
            time.sleep(0.3)
    assert command.returncode == -number


DROPPED = """
import os, signal, sys, time, weakref
from ggufkit.cli import errors, signals
import click
signals.leave_at_once()

class Dropping:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
        for _ in range(10): pass

@click.command()
def command():
    it = Dropping()
    del it
    time.sleep(60)

errors.run(command)
"""


@posix
def test_signal_during_a_destructor_is_not_lost():
    done = subprocess.run(
        [sys.executable, "-c", DROPPED], capture_output=True, text=True, check=False, timeout=50
    )
    assert done.returncode == 130
    assert done.stderr.strip() == "interrupted; every output is whole, or as it was"


ENDED = """
import signal, sys, time
from ggufkit.cli import errors, signals
import click
signals.leave_at_once()
signals.LATER = 0.2

class Dropping:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

@click.command()
def command():
    Dropping()

try:
    errors.run(command)
finally:
    time.sleep(0.4)
"""


@posix
def test_dropped_signal_is_not_raised_after_the_end():
    done = subprocess.run(
        [sys.executable, "-c", ENDED], capture_output=True, text=True, check=False, timeout=50
    )
    assert (done.returncode, done.stderr) == (0, "")


# A command whose `STEPS` catch or wrap the exception of a signal.
WRAPPED = """
import contextlib, signal, sys
from ggufkit.cli import errors, signals
from ggufkit.cli.app import Commands
from ggufkit.errors import OutputError
import click
signals.leave_at_once()
NUMBER = getattr(signal, sys.argv.pop())

def interrupt():
    signal.raise_signal(NUMBER)

class Member:
    def __set_name__(self, owner, name):
        interrupt()

@contextlib.contextmanager
def restless():
    with contextlib.suppress(BaseException):
        yield
    yield

def iterated():
    try:
        interrupt()
        yield
    except BaseException:
        raise StopIteration

@click.command()
def command():
    STEPS

class Group(Commands):
    def get_command(self, ctx, name):
        return command

errors.run(Group("ggufkit"))
"""
WRAPPING = {
    "class": "type('Enum', (), {'member': Member()})",
    "context": "with restless(): interrupt()",
    "generator": "list(iterated())",
    "cleanup": """try: interrupt()
    finally: open('/no such folder/x')""",
    "error of ours": """try: interrupt()
    except BaseException as error: raise OutputError('not written') from error""",
    "usage": """try: interrupt()
    except BaseException as error: raise click.UsageError('wrong') from error""",
    "unknown": """with contextlib.suppress(BaseException): interrupt()
    raise SystemError('returned a result with an exception set')""",
}


@posix
@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
@pytest.mark.parametrize("wrapping", WRAPPING)
def test_signal_whose_exception_is_wrapped_ends_the_command(wrapping, name, code):
    text = WRAPPED.replace("STEPS", WRAPPING[wrapping])
    done = subprocess.run(
        [sys.executable, "-c", text, "inspect", name],
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    assert "error:" not in done.stderr


def test_ignored_signals_stay_ignored(model):
    code = "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    code += "from ggufkit.cli import signals; signals.leave_at_once(); signals.clear_away_first()\n"
    code += "signal.raise_signal(signal.SIGINT); print('goes on')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "goes on\n"
