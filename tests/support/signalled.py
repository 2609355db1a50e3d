"""Send commands a signal at a random moment and report the state afterwards.

As a program: signalled.py COMMAND TIMES FOLDER prints JSON, a list with one object for each run, of
the form that faulty.py has. Instants are spread over the time that a run takes and a little more.
"""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import sys
import time
import traceback
from pathlib import Path
from typing import Any, Final, NamedTuple

import faulty
from ggufkit.cli import errors
from ggufkit.cli.app import app
from ggufkit.system import cancellation

NUMBERS: Final = (signal.SIGINT, signal.SIGTERM)
FAULTS: Final = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
PATIENCE: Final = 60.0  # seconds after which a process hangs
TRIALS: Final = 3  # to see how long a run takes
THREADS: Final = "3"


class Stopped(NamedTuple):
    """How a run ended: by a signal of its own if `code` is negative; None if it did not."""

    code: int | None
    errors: str
    seconds: float  # from its beginning, or from the signal


class Signalled(faulty.Trial):
    """A command that gets signals."""

    def __init__(self, command: str, folder: Path) -> None:
        super().__init__(command, folder)
        if "--threads" in self.arguments:
            self.arguments[self.arguments.index("--threads") + 1] = THREADS
        runs = []
        for _ in range(TRIALS):
            faulty.renew(self.original, self.work)
            runs.append(self.ended(None, 0).seconds)
        self.seconds = statistics.median(runs)

    def ended(self, number: int | None, after: float) -> Stopped:
        """Run the command, and send a signal after so many seconds."""
        errors = self.work.with_name("errors")
        signal.pthread_sigmask(signal.SIG_BLOCK, NUMBERS)
        process = os.fork()
        if not process:
            self._run(errors)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, NUMBERS)
        begun = time.monotonic()
        if number is not None:
            time.sleep(after)
            os.kill(process, number)
            begun = time.monotonic()
        status = _waited(process)
        code = None if status is None else os.waitstatus_to_exitcode(status)
        return Stopped(
            code, errors.read_text() if errors.exists() else "", time.monotonic() - begun
        )

    def _run(self, errors_path: Path) -> None:
        """Run the command in this process."""
        os.chdir(self.work)
        os.dup2(os.open(errors_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        os.dup2(2, 1)
        sys.argv = ["ggufkit", *self.arguments]
        cancellation.handle_signals()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, NUMBERS)
        try:
            errors.run(app)
        except SystemExit as end:
            sys.stderr.flush()
            os._exit(int(end.code or 0))
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            raise
        finally:
            os._exit(99)

    def meet_at(self, number: int, after: float) -> dict[str, Any]:
        """Run the command, interrupt it by a signal, and return the state afterwards."""
        faulty.renew(self.original, self.work)
        ended = self.ended(number, after)
        there = faulty.content(self.work / "out")
        hidden = [name for name in there if Path(name).name.startswith(".")]
        if self.command in faulty.MAKES_MANY:  # what the next run goes on with
            hidden = [name for name in hidden if name.startswith(".")]
        return {
            "fault": FAULTS[signal.Signals(number)],
            "after": round(after / self.seconds, 3),
            "seconds": ended.seconds,
            "code": ended.code,
            "errors": ended.errors,
            "hidden": [name for name in hidden if name not in self.old | self.new],
            "inputs": faulty.inputs(self.work) == faulty.inputs(self.original),
            "output": self.output(there),
            "again": self.again(),
        }


def _waited(process: int) -> int | None:
    """Return the status of a process that ends, or None if it hangs."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        process_id, status = os.waitpid(process, os.WNOHANG)
        if process_id:
            return status
        time.sleep(0.002)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return None


def main(command: str, times: str, folder: str) -> None:
    """Print the result of each run."""
    faulty.replace_llama_cpp()
    trial = Signalled(command, Path(folder))
    draw = random.Random(command)
    rows = [
        trial.meet_at(NUMBERS[number % 2], draw.uniform(0, 1.1 * trial.seconds))
        for number in range(int(times))
    ]
    json.dump(rows, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
