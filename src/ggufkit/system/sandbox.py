"""Run work on an untrusted file in a separate process with limits on time, memory and output.

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
import signal
import subprocess
import sys
import threading
import weakref
from typing import Any, Final

MAX_WAIT: Final = 20  # seconds by the clock
MAX_BYTES: Final = 1 << 30  # of memory
MAX_ANSWER: Final = 64 << 20  # bytes of an answer as JSON
_CHILD: Final = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "from ggufkit.system import sandbox; sandbox.serve(sys.argv[2], int(sys.argv[3]))"
)


class StoppedError(Exception):
    """The work exceeded a limit."""


def answer_of(module: str, job: object) -> Any:  # noqa: ANN401 (as JSON is)
    """Return the result of a module's `answer` for a job; StoppedError beyond the limits."""
    servant = Servant(module)
    try:
        return servant.answer_of(job, MAX_WAIT)
    finally:
        servant.stop()


class Servant:
    """A process that does the jobs of one module, one after the other, for all threads.

    It starts with the first job, and again after one that was stopped.
    """

    def __init__(self, module: str, memory: int = MAX_BYTES) -> None:
        """Start nothing yet; the process may take `memory` bytes."""
        self.module = module
        self.memory = memory
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        _servants.add(self)

    def answer_of(self, job: object, seconds: float) -> Any:  # noqa: ANN401 (as JSON is)
        """Return the module's `answer` for a job; StoppedError after `seconds` by the clock.

        It also waits up to `seconds` for the jobs of other threads.
        """
        line = json.dumps(job).encode() + b"\n"
        if not self._lock.acquire(timeout=seconds):
            raise StoppedError(f"other work takes more than {seconds:g} seconds")
        try:
            process = self._running()
            late = threading.Timer(seconds, process.kill)
            late.start()
            received = b""
            try:
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.write(line)  # type: ignore[union-attr]
                    process.stdin.flush()  # type: ignore[union-attr]
                    received = process.stdout.readline(MAX_ANSWER)  # type: ignore[union-attr]
            finally:
                late.cancel()
                if not received.endswith(b"\n"):
                    self.stop()
        finally:
            self._lock.release()
        if not received.endswith(b"\n"):
            raise StoppedError(
                f"it takes more than {seconds:g} seconds or too much memory, or answers at length"
            )
        return json.loads(received)

    def kill(self) -> None:
        """End the process, if this process started it; other threads may be using it."""
        process = self._process
        if process is not None and self._owner == os.getpid():
            process.kill()
            process.wait()

    def stop(self) -> None:
        """End the process and close its pipes; only for the thread that uses it."""
        self.kill()
        process, self._process = self._process, None
        if process is not None and self._owner == os.getpid():
            with contextlib.suppress(BrokenPipeError), process:  # closes the pipes
                pass

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._owner != os.getpid():
            self._process.returncode = 0  # after a fork: the parent waits for its own process
        elif self._process is not None and self._process.poll() is None:
            return self._process
        self.stop()
        try:
            paths = json.dumps([path for path in sys.path if path])
            arguments = (paths, self.module, str(self.memory))
            self._process = subprocess.Popen(  # noqa: S603 (what is not ours is data on stdin)
                [sys.executable, "-I", "-c", _CHILD, *arguments],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        except OSError as error:
            raise StoppedError(f"no process could be started: {error}") from None
        self._owner = os.getpid()
        return self._process


_servants: Final[weakref.WeakSet[Servant]] = weakref.WeakSet()


@atexit.register
def end_servants() -> None:
    """End the processes of all servants: their work is stopped, and no thread waits for it."""
    for servant in list(_servants):
        servant.kill()


def serve(module: str, memory: int) -> None:
    """Run in the child: answer one line of JSON after another, until stdin ends."""
    answer = importlib.import_module(module).answer
    limit(memory)
    for line in sys.stdin:
        _end_after(MAX_WAIT + 1)
        text = json.dumps(answer(json.loads(line)))
        if len(text) >= MAX_ANSWER:
            sys.exit(1)
        print(text, flush=True)  # noqa: T201 (the answer)
        _end_after(0)


def _end_after(seconds: int) -> None:
    """End this process later, even if its parent is gone by then; never for 0."""
    if hasattr(signal, "alarm"):  # not on Windows
        signal.alarm(seconds)


def limit(memory: int) -> None:
    """Set the limits of this process, so that the system stops it."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource  # noqa: PLC0415 (not on Windows, where the parent's clock must do)

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
