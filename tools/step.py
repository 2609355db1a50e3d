"""Run one step of a build: say what it does, that it goes on, and how long it took.

    python tools/step.py [--silent-command] TITLE COMMAND...

With --silent-command, for a command that shows nothing by itself, a line every ten seconds says
that the step goes on.
"""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import suppress

PULSE = 10.0  # seconds


def main(arguments: list[str]) -> int:
    """Run the step and return the exit code of its command."""
    is_silent = arguments[:1] == ["--silent-command"]
    title, *command = arguments[is_silent:]
    began = time.monotonic()
    print(f"==> {title}", flush=True)
    with subprocess.Popen(command) as process:
        while process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(PULSE if is_silent else None)
            if process.poll() is None:
                print(f"    … {time.monotonic() - began:.0f} s so far", flush=True)
    result = "done" if process.returncode == 0 else "failed"
    print(f"    {result} after {time.monotonic() - began:.1f} s", flush=True)
    return process.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
