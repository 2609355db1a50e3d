"""Run one step of a build: print its title, that it is running, and how long it took.

    python tools/step.py [--silent-command] TITLE COMMAND...

With --silent-command, for a command without output, a line every ten seconds shows that the step is
running.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

PULSE = 10.0  # seconds


def run(
    title: str,
    command: Sequence[str | Path],
    *,
    is_silent: bool = False,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> int:
    """Run the step and return the exit code of its command."""
    began = time.monotonic()
    print(f"==> {title}", flush=True)
    with subprocess.Popen(command, cwd=folder, env=environment) as process:
        while process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(PULSE if is_silent else None)
            if process.poll() is None:
                print(f"    … {time.monotonic() - began:.0f} s so far", flush=True)
    result = "done" if process.returncode == 0 else "failed"
    print(f"    {result} after {time.monotonic() - began:.1f} s", flush=True)
    return process.returncode


def main(arguments: list[str]) -> int:
    """Run the step that the command line names."""
    is_silent = arguments[:1] == ["--silent-command"]
    title, *command = arguments[is_silent:]
    return run(title, command, is_silent=is_silent)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
