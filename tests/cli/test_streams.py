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
    code, errors = in_shell(model, f"ggufkit {words} > /dev/full")
    assert code == 1
    assert errors.count('"error": ' if "--json" in words else "error: ") == 1
    assert "No space left on device" in errors
    assert "Traceback" not in errors


@needs_full
@pytest.mark.parametrize("buffer", ["", "1"], ids=["buffered", "unbuffered"])
def test_full_output_is_named_and_finished_files_are_told(model, buffer):
    run = f"export PYTHONUNBUFFERED={buffer}; ggufkit"
    code, errors = in_shell(model, f"{run} copy m.gguf out.gguf > /dev/full")
    assert code == 1
    assert "writing standard output: No space left on device" in errors
    assert "The files are written" in errors
    assert (model.parent / "out.gguf").exists()
    for options in ("", "--json"):
        code, errors = in_shell(model, f"{run} inspect m.gguf {options} > /dev/full")
        assert "writing standard output" in errors
        assert "The files are written" not in errors
    assert "standard output: No space" in in_shell(model, f"{run} copy m.gguf - > /dev/full")[1]


@needs_full
@pytest.mark.parametrize("other", ["m.gguf", "n.gguf"])
def test_full_output_is_not_taken_for_a_difference(model, other):
    ggufkit.save(model.with_name("n.gguf"), {"x": np.ones(32, "f4")})
    code, errors = in_shell(model, f"ggufkit diff m.gguf {other} > /dev/full")
    assert code == 2
    assert errors.count("error: ") == 1


@posix
@pytest.mark.parametrize("words", ["inspect m.gguf", "check m.gguf --json", "--version"])
def test_text_for_a_missing_output_is_dropped(model, words):
    assert in_shell(model, f"ggufkit {words} >&-") == (0, "")


@posix
def test_model_for_a_missing_output_gives_one_error(model):
    code, errors = in_shell(model, "ggufkit copy m.gguf - >&-")
    assert code == 1
    assert errors.count("error: ") == 1
    assert "Traceback" not in errors


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
    with ggufkit.open(model) as copied:
        assert copied.metadata["general.name"] == "y"
    in_shell(model, "ggufkit copy m.gguf n.gguf >&- 2>&- <&-")
    assert model.with_name("n.gguf").read_bytes() == after


@needs_full
def test_error_that_cannot_be_printed_gives_an_exit_code(model):
    assert in_shell(model, "ggufkit inspect none.gguf 2>/dev/full")[0] == 1


def test_closed_pipe_gets_no_error_message(model):
    reading, writing = os.pipe()
    os.close(reading)
    with process("inspect", model, stdout=writing) as command:
        errors = command.stderr.read()
    os.close(writing)
    assert errors == b""


def test_closed_pipe_does_not_fail_a_command_whose_work_is_done(model):
    words = ("quantize", model, model.with_name("q.gguf"), "Q8_0", "--explain")
    for arguments in (words, (*words, "--json"), (*words, "--dry-run")):
        reading, writing = os.pipe()
        os.close(reading)
        with process(*arguments, stdout=writing) as command:
            errors = command.stderr.read()
        os.close(writing)
        assert (command.returncode, b"rror" in errors) == (0, False)


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
@pytest.mark.parametrize(("module", "codes"), [("SIGINT", {130}), ("SIGTERM", {143})])
@pytest.mark.parametrize("place", [1, 2, 5, 10, 50, 100])
def test_signal_while_modules_are_imported_shows_no_traceback(model, module, codes, place):
    done = subprocess.run(
        [sys.executable, "-c", IMPORTING, str(place), module, "inspect", str(model)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in codes
    assert "Traceback" not in done.stderr


# Runs STEPS as a command.
RUNNING = """
import signal, time
from ggufkit.cli import errors
from ggufkit.system import cancellation
import click
cancellation.handle_signals()

@click.command()
def command():
    STEPS

errors.run(command)
"""
SLOW = """with cancellation.shield():
        print("begun", flush=True)
        while True:  # clearing away never ends
            time.sleep(0.05)"""


@posix
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_second_signal_ends_the_process_at_once(number):
    code = [sys.executable, "-c", RUNNING.replace("STEPS", SLOW)]
    with subprocess.Popen(code, stdout=subprocess.PIPE) as command:
        command.stdout.readline()
        while command.poll() is None:
            command.send_signal(number)
            time.sleep(0.3)
    assert command.returncode == 128 + number


CAUGHT = {
    "nothing to clean": "raise_signal(); print('goes on', flush=True)",
    "destructor": """it = type('Raising', (), {'__del__': lambda _: raise_signal()})()
    del it; print('goes on', flush=True)""",
    "shield": """with cancellation.shield():
        raise_signal()
        cancellation.check_cancelled(); print('goes on', flush=True)""",
    "end of a shield": """with cancellation.shield(): raise_signal()
    print('goes on', flush=True)""",
    "error in a shield": """with cancellation.shield():
        raise_signal(); raise click.UsageError('wrong')""",
    "cleaning that fails": """with cancellation.shield():
        try: raise_signal(); cancellation.check_cancelled()
        finally: open('/no such folder/x')""",
    "caught in a shield": """with cancellation.shield():
        try: raise_signal(); cancellation.check_cancelled()
        except BaseException: pass
    print('goes on', flush=True)""",
}


@posix
@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
@pytest.mark.parametrize("steps", CAUGHT.values(), ids=CAUGHT)
def test_signal_ends_the_command_with_one_line(steps, name, code):
    text = RUNNING.replace("STEPS", steps.replace("raise_signal()", f"signal.raise_signal({name})"))
    text = text.replace(f"({name})", f"(signal.{name})")
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=False, timeout=50
    )
    message = "interrupted; every output is whole, or as it was\n"
    assert (done.returncode, done.stdout, done.stderr) == (code, "", message)


def test_ignored_signals_stay_ignored(model):
    code = "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    code += "from ggufkit.system import cancellation; cancellation.handle_signals()\n"
    code += "signal.raise_signal(signal.SIGINT); print('goes on')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "goes on\n"
