"""Run work on an untrusted file in a separate process with limits on time and memory.

A module that does such work has a function `answer`, from JSON to JSON. It is imported before the
limits are set; nothing from the file is read before.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import subprocess
import sys
from typing import Any, Final

MAX_SECONDS: Final = 5  # of processor time
MAX_WAIT: Final = 20  # seconds by the clock
MAX_BYTES: Final = 1 << 30  # of memory
_CHILD: Final = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "from ggufkit.system.sandbox import serve; serve(sys.argv[2])"
)


class StoppedError(Exception):
    """The work exceeded a limit."""


def answer_of(module: str, job: object) -> Any:  # noqa: ANN401 (as JSON is)
    """Return the result of a module's `answer` for a job; StoppedError beyond the limits."""
    paths = json.dumps([each for each in sys.path if each])
    command = [sys.executable, "-I", "-c", _CHILD, paths, module]
    sent = json.dumps(job).encode()
    try:
        done = subprocess.run(  # noqa: S603 (what is not ours is data on stdin)
            command, input=sent, capture_output=True, timeout=MAX_WAIT, check=False
        )
    except subprocess.TimeoutExpired:
        raise StoppedError(f"it takes more than {MAX_WAIT} seconds") from None
    except OSError as error:
        raise StoppedError(f"no process could be started: {error}") from None
    if done.returncode:
        raise StoppedError("it needs too much time or memory")
    return json.loads(done.stdout)


def serve(module: str) -> None:
    """Run in the child: read a job from stdin, and write the answer to stdout."""
    answer = importlib.import_module(module).answer
    job = json.load(sys.stdin)
    limit()
    json.dump(answer(job), sys.stdout)


def limit(seconds: int = MAX_SECONDS) -> None:
    """Set the limits of this process, so that the system stops it."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource  # noqa: PLC0415 (not on Windows, where the parent's clock must do)

        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
