"""Text that llama.cpp generates from a file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOOLS = Path(__file__).parents[2] / "tools"
SPEAK = "import sys, pathlib, demo; print(demo.generate(pathlib.Path(sys.argv[1])))"


def speak(path):
    """Return what llama.cpp generates; a process of its own, for llama.cpp may end it."""
    command = [sys.executable, "-c", SPEAK, str(path)]
    done = subprocess.run(command, cwd=TOOLS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()
