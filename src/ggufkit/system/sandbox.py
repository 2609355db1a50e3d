"""Run work on an untrusted file in a separate process with limits on time and memory.

A module that does such work has a function `answer`, from JSON to JSON. It is imported before the
limits are set; nothing from the file is read before. `answer_of` starts a process for one job, a
`Servant` keeps one for many.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import subprocess
import sys
import threading
from typing import Any, Final

MAX_SECONDS: Final = 5  # of processor time
MAX_WAIT: Final = 20  # seconds by the clock
MAX_BYTES: Final = 1 << 30  # of memory
_CHILD: Final = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "from ggufkit.system import sandbox; getattr(sandbox, sys.argv[3])(sys.argv[2])"
)


class StoppedError(Exception):
    """The work exceeded a limit."""


def answer_of(module: str, job: object) -> Any:  # noqa: ANN401 (as JSON is)
    """Return the result of a module's `answer` for a job; StoppedError beyond the limits."""
    sent = json.dumps(job).encode()
    try:
        done = subprocess.run(  # noqa: S603 (what is not ours is data on stdin)
            _command(module, "serve"),
            input=sent,
            capture_output=True,
            timeout=MAX_WAIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise StoppedError(f"it takes more than {MAX_WAIT} seconds") from None
    except OSError as error:
        raise StoppedError(f"no process could be started: {error}") from None
    if done.returncode:
        raise StoppedError("it needs too much time or memory")
    return json.loads(done.stdout)


def _command(module: str, function: str) -> list[str]:
    paths = json.dumps([each for each in sys.path if each])
    return [sys.executable, "-I", "-c", _CHILD, paths, module, function]


class Servant:
    """A process that does the jobs of one module, one after the other, for all threads.

    It starts with the first job, and again after one that was stopped.
    """

    def __init__(self, module: str) -> None:
        """Start nothing yet."""
        self.module = module
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        atexit.register(self.stop)

    def answer_of(self, job: object, seconds: float) -> Any:  # noqa: ANN401 (as JSON is)
        """Return the module's `answer` for a job; StoppedError after `seconds` by the clock."""
        sent = json.dumps(job).encode() + b"\n"
        with self._lock:
            process = self._running()
            late = threading.Timer(seconds, process.kill)
            late.start()
            received = b""
            try:
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.write(sent)  # type: ignore[union-attr]
                    process.stdin.flush()  # type: ignore[union-attr]
                    received = process.stdout.readline()  # type: ignore[union-attr]
            finally:
                late.cancel()
                if not received.endswith(b"\n"):
                    self.stop()
        if not received.endswith(b"\n"):
            raise StoppedError(f"it takes more than {seconds:g} seconds, or too much memory")
        return json.loads(received)

    def stop(self) -> None:
        """End the process, if this process started it."""
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return
        process.kill()
        with process:  # close the pipes, and wait
            pass

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._owner == os.getpid():
            return self._process
        if self._process is not None:
            self._process.returncode = 0  # after a fork: the parent waits for its own process
        try:
            self._process = subprocess.Popen(  # noqa: S603 (what is not ours is data on stdin)
                _command(self.module, "serve_many"),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        except OSError as error:
            raise StoppedError(f"no process could be started: {error}") from None
        self._owner = os.getpid()
        return self._process


def serve(module: str) -> None:
    """Run in the child: read a job from stdin, and write the answer to stdout."""
    answer = importlib.import_module(module).answer
    job = json.load(sys.stdin)
    limit()
    json.dump(answer(job), sys.stdout)


def serve_many(module: str) -> None:
    """Run in the child: answer one line of JSON after another, until stdin ends."""
    answer = importlib.import_module(module).answer
    limit(None)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)  # noqa: T201 (the answer)


def limit(seconds: int | None = MAX_SECONDS) -> None:
    """Set the limits of this process, so that the system stops it."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource  # noqa: PLC0415 (not on Windows, where the parent's clock must do)

        if seconds is not None:
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
