"""Steps of a build print their title and duration."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

STEP = Path(__file__).parents[2] / "tools" / "step.py"


def run(*arguments):
    command = [sys.executable, str(STEP), *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_a_step_shows_its_title_its_output_and_its_time():
    done = run("Count", sys.executable, "-c", "print(12)")
    first, output, last = done.stdout.splitlines()
    assert (first, output) == ("==> Count", "12")
    assert last.startswith("    done after ")
    assert done.returncode == 0


def test_a_step_fails_when_its_command_fails():
    done = run("--silent-command", "Fail", sys.executable, "-c", "raise SystemExit(3)")
    assert "failed after" in done.stdout
    assert done.returncode == 3
